"""A gate on a real program: whole runs from seeds of their own, and its words and codes in a proof."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")

from gobrrr.capture.hooks.module_parts import is_bare
from gobrrr.cli.verbs import prove, verify
from gobrrr.errors import GobrrrError
from gobrrr.guard.model.gate import VERDICT_OF, Gated
from gobrrr.guard.model.verdict import Guarded
from gobrrr.report.forms import formats
from gobrrr.report.told import proof
from gobrrr.report.told.blocks import plainly
from gobrrr.trial.edit import reading
from gobrrr.trial.edit.program_edit import ProgramEdit
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.gate.rule import parse
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.receipt import receipt as receipts
from gobrrr.trial.receipt.receipt import EditTold, Measured, Receipt, Speedup, TrialResult

PROGRAM = """
import json
import sys
import torch

torch.manual_seed(3)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 2).eval()
x = torch.randn(400, 8)
truth = model(x).argmax(1)
with torch.no_grad():
    right = sum((model(rows + 0.1 * torch.randn(rows.shape)).argmax(1) == labels).sum().item()
                for rows, labels in zip(x.split(40), truth.split(40)))
print(f"accuracy: {100 * right / 400:.2f}%")
json.dump({"test": {"acc": right / 400}}, open("metrics.json", "w"))
"""


def on_trial(folder: Path, old: str, new: str, rule: str, measure: str = "") -> EditOnTrial:
    (folder / "eval.py").write_text(PROGRAM)
    edit = ProgramEdit("a.diff", {"eval.py": PROGRAM.replace(old, new).encode()})
    return EditOnTrial(edit, gates=(parse(rule, measure),))


def gated(folder: Path, edit: EditOnTrial) -> Guarded:
    program = Program((sys.executable, "eval.py"), folder, edits={"a.diff": edit})
    referee = LiveReferee(program, folder.parent / "arms")
    try:
        found = referee.gated(("a.diff",), 60.0)
    finally:
        referee.close()
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program").mkdir()
    return tmp_path / "program"


def test_each_pair_has_its_seed_and_a_cheat_is_seen_at_once(folder: Path) -> None:
    """Its accuracy is better, of half of the samples; a file of the user's own is not taken for one of the run."""
    (folder / "metrics.json").write_text('{"test": {"acc": 1.0}}')
    cheat = "x, truth = x[:200], truth[:200]\nwith torch.no_grad():"
    found = gated(folder, on_trial(folder, "with torch.no_grad():", cheat, "acc >= -1%", "metrics.json:test.acc"))
    assert found.red and found.reasons == ("work: 600 of 800 samples given to models",)


def test_a_whole_run_is_counted_and_has_its_own_seed(folder: Path) -> None:
    edit = on_trial(folder, "400", "400", "acc >= -1%", "metrics.json:test.acc")
    referee = LiveReferee(Program((sys.executable, "eval.py"), folder, edits={"a.diff": edit}), folder.parent / "arms")
    runs = []
    for seed in (0, 1):
        arm = referee.whole(folder.parent / f"arm{seed}", ())
        ran = arm.whole(seed, 60.0)
        runs.append((ran.printed, edit.gates[0].value(ran.printed, ran.folder, ran.began_ns)[0], ran.row))
        arm.end()
    referee.close()
    (said, value, row), (other, _, later) = runs
    assert said == f"accuracy: {100 * value:.2f}%\n" and said != other
    assert (row.evaluated.rows, row.updates) == (800, 0) and row.made != later.made


@pytest.mark.slow
def test_an_edit_that_spoils_the_model_is_refused_by_its_measure(folder: Path) -> None:
    turned = on_trial(folder, "rows.shape))", "rows.shape)).neg()", "accuracy >= -0.5")
    (gate,) = gated(folder, turned).gates
    assert gate.verdict == "refused" and len(set(gate.baseline)) > 1 and max(gate.candidate) < min(gate.baseline)


def test_a_quantised_model_is_no_bare_one() -> None:
    """Its layers hold packed weights and no parameters; a loss holds neither."""
    import torch
    from torch.ao.nn.quantized.dynamic import Linear

    assert not is_bare(torch.nn.Sequential(torch.nn.ReLU(), Linear(4, 2)))
    assert is_bare(torch.nn.CrossEntropyLoss()) and not is_bare(torch.nn.Linear(4, 2))


def told(verdict: str, **more: object) -> Gated:
    known = {"change": -0.1, "low": -0.3, "high": 0.1, "allowed": -0.5, "unit": "points"} | more
    return Gated(
        rule="accuracy >= -0.5", name="accuracy", verdict=verdict, baseline=(97.2,), candidate=(97.1,), **known
    )  # type: ignore[arg-type]


FASTER = Speedup(1.9, 1.7, 2.1)


@pytest.mark.parametrize(
    ("gate", "speedup", "code", "said"),
    [
        (told("accepted"), FASTER, 0,
         "1.90 times as fast (1.70 to 2.10); accuracy -0.10 points (-0.30 to +0.10), allowed -0.5: accepted; proven"),
        (told("refused", change=-6.0, low=-7.0, high=-5.0), None, 6,
         "Refused; accuracy -6.00 points (-7.00 to -5.00), allowed -0.5: refused; judged"),
        (told("undecided", low=-0.7, high=0.5, runs_needed=12), None, 3,
         "Not settled; accuracy -0.10 points (-0.70 to +0.50), allowed -0.5: undecided, about 12 more runs would"),
        (told("accepted", updates=1200, seeds=(0, 1, 2, 3)), FASTER, 0,
         "accuracy -0.10 points (-0.30 to +0.10) after 1,200 updates on 4 seeds, allowed -0.5: accepted; proven"),
        (told("undecided", low=None, high=None), None, 3, "accuracy -0.10 points, allowed -0.5: undecided, more runs"),
    ],
)  # fmt: skip
def test_speed_and_quality_are_said_together(
    tmp_path: Path, gate: Gated, speedup: Speedup | None, code: int, said: str
) -> None:
    verdict = "faster" if speedup else "inconclusive"
    guard = Guarded(VERDICT_OF[gate.verdict], gates=(gate,))
    trial = TrialResult(remedies=("a.diff",), purpose="final", verdict=verdict, guard=guard, speedup=speedup)
    kept = ("a.diff",) if not code else ()
    edits = {"a.diff": EditTold("--- a/x\n", gates=(("accuracy >= -0.5", ""),))}
    found = Receipt(verb="prove", trials=(trial,), kept=kept, guard=guard, edits=edits, seconds=30.0, speedup=speedup)
    assert said in plainly(proof.verdict(found)) and prove.exit_code(found) == code
    assert verify.exit_code(Measured(verdict=verdict, speedup=speedup), guard) == code
    assert b"97.2 as the program is" in formats.render(found, "text", formats.PLAIN)
    receipts.write(found, tmp_path / "receipt.json")
    assert receipts.read(tmp_path / "receipt.json") == found


def test_the_gates_of_a_receipt_are_those_that_verify_holds_and_a_strangers_are_checked(tmp_path: Path) -> None:
    (tmp_path / "eval.py").write_text("a = 1\n")
    diff = "--- a/eval.py\n+++ b/eval.py\n@@ -1,1 +1,1 @@\n-a = 1\n+a = 2\n"
    edit = EditTold(diff, gates=(("accuracy >= -0.5%", ""),))
    found = Receipt(verb="prove", kept=("a.diff",), edits={"a.diff": edit})
    program = verify._with_edits(found, Program((), tmp_path))
    assert program.edits["a.diff"].gates == (parse("accuracy >= -0.5%"),)
    assert program.edits["a.diff"].edit == reading.told("a.diff", diff, {}, None, tmp_path)
    strange = msgspec.structs.replace(edit, gates=(("accuracy >= -0.5%", "../m.json:acc"),))
    with pytest.raises(GobrrrError, match="outside the program's folder"):
        verify._with_edits(msgspec.structs.replace(found, edits={"a.diff": strange}), Program((), tmp_path))
