"""`gobrrr tune` on unmodified programs: diagnosis, trials, guard, receipt, recipe, and the recipe at a run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("torch")

from gobrrr import rules
from gobrrr.pipeline import tuning
from gobrrr.remedies import registry
from gobrrr.rules.model.finding import Finding, Rehearsed, Saving
from gobrrr.rules.verdict.report import Report, Step, Verdict
from gobrrr.trial.race.search import Race
from gobrrr.trial.receipt import receipt as receipts
from gobrrr.trial.receipt import recipe as recipes

PROGRAM = '''
"""Trains a wide net of many small layers, so that the loop optimizer takes most of the step."""
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(48, 48) for _ in range(40)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(8, 48)
for step in range(100_000):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if step % 50 == 0:
        open("log.txt", "a").write(f"{step}\\n")
'''


COMPILERS = ("compile", "compile_reduce_overhead", "compile_max_autotune", "compile_memory_budget")


def gobrrr(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gobrrr", *words], cwd=cwd, capture_output=True, text=True)


def report(*codes: str, wall: float = 1e7) -> Report:
    found = tuple(
        Finding(code, "x", "overhead", "critical", Saving(1e5, 1e6, 2e6), "m", remedies=offered(code)) for code in codes
    )  # fmt: skip
    step = Step(10, int(wall), int(wall), kind="training")
    return Report(verdict=Verdict("overhead", ""), step=step, findings=found)


def offered(code: str) -> tuple[str, ...]:
    """All that a finding of this kind may offer."""
    return rules.load()[code].remedies


def chosen(*codes: str, **wishes: tuple[str, ...]) -> set[str]:
    return {c.name for c in tuning.candidates(report(*codes), tuning.Wishes(**wishes))}


def test_remedies_are_tried_where_a_finding_calls_for_them_and_staples_always() -> None:
    staples = set(tuning.STAPLES)
    assert chosen() == staples
    assert chosen("BRR208") == staples | {"fused_optimizer"}
    assert chosen("BRR208", without=("fused_optimizer", "compile")) == staples - {"fused_optimizer", "compile"}
    assert chosen("BRR208", only=("pin_memory",)) == {"pin_memory"}


def test_compile_comes_before_what_promises_little_and_a_rehearsal_has_the_last_word() -> None:
    called_for = report("BRR208")
    found = {c.name: c for c in tuning.candidates(called_for, tuning.Wishes())}
    assert found["compile"].predicted.expected_ns == tuning.COMPILED * called_for.step.plain_wall_ns
    assert found["fused_optimizer"].predicted.expected_ns > found["malloc_thresholds"].predicted.expected_ns == 0
    assert found["malloc_thresholds"].predicted.ceiling_ns > 0
    here = (Rehearsed("fused_optimizer", Saving(1.0, 2.0, 3.0)),)
    played = replace(called_for, findings=(replace(called_for.findings[0], rehearsed=here),))
    rehearsed = {c.name: c for c in tuning.candidates(played, tuning.Wishes())}
    assert rehearsed["fused_optimizer"].predicted == Saving(1.0, 2.0, 3.0)


def test_a_staple_that_lost_in_the_rehearsal_is_no_candidate_to_race() -> None:
    played = replace(report(), rehearsed=(Rehearsed("bf16_autocast", Saving(), 5e6),))
    found = {c.name: c for c in tuning.candidates(played, tuning.Wishes())}
    assert found["bf16_autocast"].predicted == Saving() and found["bf16_autocast"].rehearsed
    assert found["fused_optimizer"].predicted.ceiling_ns > 0 and not found["fused_optimizer"].rehearsed
    race = Race(list(found.values()), 1e7)
    assert race.next(9) is not None and "rehearsed here" in race.skipped["bf16_autocast"]
    asked = {c.name: c for c in tuning.candidates(played, tuning.Wishes(named=("bf16_autocast",)))}
    assert asked["bf16_autocast"].named, "who names it has it tried"


def test_what_the_user_lets_be_tried() -> None:
    assert [*filter(tuning.Wishes(without=("a",)).allow, "ab")] == ["b"]
    assert [*filter(tuning.Wishes(only=("a", "c")).allow, "ab")] == ["a"]


def test_a_remedy_that_serves_training_alone_is_not_tried_on_an_inference() -> None:
    training = report("BRR201", "BRR208")
    inferring = replace(training, step=replace(training.step, kind="inference"))
    names = [{c.name for c in tuning.candidates(each, tuning.Wishes())} for each in (training, inferring)]
    assert "fused_optimizer" in names[0] - names[1]


def test_a_program_that_compiles_itself_is_not_compiled_again() -> None:
    known = replace(report("BRR301"), compiled=True)
    assert not {c.name for c in tuning.candidates(known, tuning.Wishes())} & set(COMPILERS)
    assert {"compile"} == {c.name for c in tuning.candidates(known, tuning.Wishes(only=("compile",)))}


@pytest.mark.parametrize(("fusable", "tried"), [(None, True), (True, True), (False, False)])
def test_an_optimizer_that_is_fused_already_is_left_alone(fusable: bool | None, tried: bool) -> None:
    """transformers' Trainer fuses its own: an arm was started for it in every tuning, and never took hold."""
    known = replace(report(), fusable=fusable)
    assert ("fused_optimizer" in {c.name for c in tuning.candidates(known, tuning.Wishes())}) is tried
    assert "fused_optimizer" in {c.name for c in tuning.candidates(known, tuning.Wishes(named=("fused_optimizer",)))}


def test_semantic_remedies_are_tried_only_when_named() -> None:
    assert "flush_denormal" not in chosen("BRR310")
    assert "flush_denormal" in chosen("BRR310", named=("flush_denormal",))


def test_an_unknown_name_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('was run')\n")
    done = gobrrr("tune", "--try", "elixir", "train.py", cwd=tmp_path)
    assert done.returncode == 2 and "no remedy is called elixir" in done.stderr and "was run" not in done.stderr


def test_a_program_without_steps_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    done = gobrrr("tune", "train.py", cwd=tmp_path)
    assert done.returncode == 2 and "no step" in done.stderr and "Traceback" not in done.stderr


def test_a_program_that_fails_is_heard(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nprint('asking')\ninput('how many? ')\n")
    done = gobrrr("tune", "train.py", cwd=tmp_path)
    assert done.returncode == 2 and f'File "{tmp_path}/train.py", line 3' in done.stderr
    assert "ended with 1 before it made a step: EOFError: EOF when reading a line" in done.stderr
    assert "a trial has no stdin" in done.stderr


def test_a_program_that_writes_outside_is_told_what_and_how_to_let_it(tmp_path: Path) -> None:
    outside = tmp_path / "results"
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text(f"open({str(outside)!r}, 'w')\n")
    done = gobrrr("tune", "train.py", cwd=tmp_path / "project")
    assert done.returncode == 2 and "Traceback" not in done.stderr and not outside.exists()
    assert "gobrrr: trial runs cannot write outside" in done.stderr or "the kernel does not keep" in done.stderr
    assert f"it writes to {outside}" in done.stderr and "--allow-writes DIR" in done.stderr
    allowed = gobrrr("tune", "--allow-writes", "..", "train.py", cwd=tmp_path / "project")
    assert outside.exists() and "never imported torch" in allowed.stderr
    missing = gobrrr("tune", "--allow-writes", "nowhere", "train.py", cwd=tmp_path / "project")
    assert missing.returncode == 2 and "--allow-writes nowhere: there is no such folder" in missing.stderr


@pytest.mark.slow
def test_a_program_is_tuned_and_its_recipe_applied(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = gobrrr("tune", "-o", "out", "--minutes", "1.5", "--only", "fused_optimizer", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "log.txt").exists(), "the user's own folder was written to"
    receipt = receipts.read(tmp_path / "out" / "receipt.json")
    assert receipt.kept == ("fused_optimizer",) and receipt.guard.green and receipt.speedup is not None
    assert receipt.speedup.low > 1.05
    assert recipes.read(tmp_path / "out" / "recipe.toml").names == ("fused_optimizer",)
    assert not list((tmp_path / "out").glob("arms*"))
    after = gobrrr("run", "--stop-after", "300", "--recipe", "out/recipe.toml", "train.py", cwd=tmp_path)
    assert "recipe: fused_optimizer (AdamW, 1 of 1 groups) applied" in after.stderr, after.stderr
    again = gobrrr("verify", "--minutes", "0.6", "out/receipt.json", cwd=tmp_path)
    assert again.returncode == 0 and "holds" in again.stdout, again.stdout + again.stderr


def test_a_hostile_recipe_is_refused_before_the_program_starts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('was run')\n")
    good = 'schema = "gobrrr.recipe/1"\n'
    for text, said in {
        "[[remedies]]": "no recipe",
        good + '[[remedies]]\nname = "elixir"\n': "no remedy is called elixir",
        good + '[[remedies]]\nname = "fused_optimizer"\n[remedies.options]\ncode = "import os"\n': "takes no option",
        good + '[[remedies]]\nname = "one_worker"\n[[remedies]]\nname = "loader_workers"\n': "together",
        good + '[[remedies]]\nname = "freeze_unused"\n': "gobrrr prove --patch",
        good + '[[remedies]]\nname = "../../x"\n': "is no name",
    }.items():
        (tmp_path / "recipe.toml").write_text(text)
        done = gobrrr("run", "--recipe", "recipe.toml", "train.py", cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr, done.stderr
        assert "was run" not in done.stderr and "Traceback" not in done.stderr


def test_remedies_are_listed_and_have_pages(tmp_path: Path) -> None:
    from gobrrr.cli.reading.remedies import page

    for name in registry.names():
        text = page(name)
        assert text.startswith(f"# {name}: ")
        written = re.sub(r"\d+", "N", text)  # a page's own machine had four cores
        assert all(re.sub(r"\d+", "N", line) in written for line in registry.remedy(name).by_hand.splitlines())
        assert all(code in text for code in registry.remedy(name).codes), name
    listed = gobrrr("remedies", cwd=tmp_path)
    assert listed.returncode == 0 and "fused_optimizer" in listed.stdout
    assert gobrrr("remedies", "elixir", cwd=tmp_path).returncode == 2


STALE = """
import os, torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 800
    def __getitem__(self, index):
        return torch.full((4,), float(index)) * float(os.environ.get("TIMES", 1))

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = DataLoader(Rows(), batch_size=4)
for epoch in range(4):
    os.environ["TIMES"] = str(1 + epoch // 2)
    for rows in loader:
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
print(rows[-1, 0].item())
"""


def test_a_remedy_that_could_not_keep_its_word_is_told_while_the_program_runs(tmp_path: Path) -> None:
    """By what no look reaches its samples are others in the second half; they are its own again from there on."""
    (tmp_path / "train.py").write_text(STALE)
    (tmp_path / "recipe.toml").write_text('schema = "gobrrr.recipe/1"\n[[remedies]]\nname = "computed_once"\n')
    done = gobrrr("run", "--no-rehearsal", "--recipe", "recipe.toml", "train.py", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "1598.0\n", done.stderr
    told = "gobrrr: all remedies are taken away: computed_once: sample "
    assert told in done.stderr and "was another when it was computed again" in done.stderr
