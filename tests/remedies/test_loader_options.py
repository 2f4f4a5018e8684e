"""How many workers a remedy sets: from the report through the process's environment, the receipt and the recipe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from torch.utils.data import DataLoader, IterableDataset

from gobrrr.capture.steps import vitals
from gobrrr.cli import recipe as recipes_read
from gobrrr.errors import GobrrrError
from gobrrr.pipeline.tuning import by_hand, options_of, recipe_of
from gobrrr.remedies import registry
from gobrrr.remedies.loader.loader import SHARE
from gobrrr.rules.model.finding import Finding, Quantity, Saving
from gobrrr.rules.verdict.report import Account, Report, Step, Verdict
from gobrrr.trial.receipt import recipe as recipes
from gobrrr.trial.receipt.receipt import Receipt, Speedup

MB = 1 << 20
LOADER = registry.remedy("loader_workers")


def report(code: str = "BRR405", **figures: float) -> Report:
    evidence = {name: Quantity(value) for name, value in figures.items()}
    found = Finding(code, "name", "data", "warning", Saving(10, 20, 60), "message", evidence=evidence)
    accounts = (Account("data_wait", 60, 0.6),)
    return Report(verdict=Verdict("data", ""), step=Step(10, 100, 100), findings=(found,), ledger=accounts)


@pytest.mark.parametrize(
    ("figures", "options", "pointless"),
    [
        ({"workers": 3}, {"workers": 3}, False),
        ({"workers": 1}, {"workers": 1}, True),
        ({"workers": 0}, {}, False),
        ({}, {}, False),
    ],
)
def test_the_models_advice_is_what_is_set(figures: dict[str, float], options: dict[str, int], pointless: bool) -> None:
    """One worker is one_worker's; where the model advises none it may be wrong, and as many as cores are tried."""
    assert LOADER.options(report(**figures)) == options
    assert LOADER.is_pointless(report(**figures)) == pointless
    assert not LOADER.options(report("BRR201", workers=3)), "another finding's figures"


def test_workers_are_no_more_than_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches of 10 MB wait in each worker: a share of 320 MB has room for four."""
    free = {"memory": 320 * MB, "shared": 1 << 40}
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free["memory"]))
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=free["shared"]))
    assert SHARE == 0.25
    assert LOADER.options(report(workers=8, held_bytes=20 * MB)) == {"workers": 4}
    assert LOADER.options(report(workers=3, held_bytes=20 * MB)) == {"workers": 3}
    free.update(memory=1 << 40, shared=160 * MB)
    if Path("/dev/shm").is_dir():
        assert LOADER.options(report(workers=8, held_bytes=20 * MB)) == {"workers": 2}
    free.update(memory=0)
    assert LOADER.options(report(workers=8, held_bytes=20 * MB)) == {"workers": 1}
    assert LOADER.options(report(workers=8)) == {"workers": 8}, "what a batch holds is not known"
    free.update(memory=1 << 60, shared=1 << 60)
    assert LOADER.options(report(workers=1300, held_bytes=1000)) == {"workers": 1024}, "what a recipe may say at most"


def test_what_the_model_expects_is_what_the_remedies_promise() -> None:
    said = report(workers=3, saved_by_workers=50, saved_by_one=15, num_workers=0)
    assert LOADER.predicts(said) == Saving(10, 50, 60)
    assert registry.remedy("one_worker").predicts(said) == Saving(10, 15, 60)
    assert LOADER.predicts(report(workers=0, saved_by_workers=0)) == Saving(0, 0, 60), "still looked at, last"
    assert LOADER.predicts(report(saved_by_workers=80)) == Saving(10, 60, 60)
    assert LOADER.predicts(report()) == Saving(10, 20, 60), "a trace asks no model"


def test_an_option_reaches_the_loader_through_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.data import DataLoader

    from gobrrr.remedies.mechanism.applying import install
    from gobrrr.remedies.mechanism.seams import Seams

    def made(num_workers: int) -> tuple[int, dict[str, str]]:
        said: dict[str, str] = {}
        seams = Seams(lambda name, detail: None, declined=said.__setitem__)
        install(seams, ["loader_workers"])
        try:
            return DataLoader([1, 2], num_workers=num_workers).num_workers, said
        finally:
            seams.remove()

    environment = registry.environment(["loader_workers", "persistent_workers"], {"loader_workers": {"workers": 3}})
    assert environment == {"GOBRRR_LOADER_WORKERS_WORKERS": "3"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert made(0)[0] == 3 and made(1)[0] == 3
    workers, said = made(4)
    assert workers == 4 and "4 workers, 3 are wanted" in said["loader_workers"]
    monkeypatch.setenv("GOBRRR_LOADER_WORKERS_WORKERS", "many")
    monkeypatch.setattr("gobrrr.capture.steps.vitals.cores", lambda: 2)
    assert made(0)[0] == 2, "as many as cores, where nothing is said"


class Stream(IterableDataset[int]):
    """As it says which worker reads it nobody can know: each reads all."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def settled(monkeypatch: pytest.MonkeyPatch, remedy: str, options: dict[str, int], data: Any, **fields: Any):
    """A loader made with a remedy that has these options, and why the remedy left it alone."""
    from gobrrr.remedies.mechanism.applying import install
    from gobrrr.remedies.mechanism.seams import Seams

    for name, value in registry.environment([remedy], {remedy: options}).items():
        monkeypatch.setenv(name, value)
    said: dict[str, str] = {}
    seams = Seams(lambda name, detail: None, declined=said.__setitem__)
    install(seams, [remedy])
    try:
        return DataLoader(data, **fields), said
    finally:
        seams.remove()


@pytest.mark.parametrize("before", [0, 1, 4])
@pytest.mark.parametrize("wanted", [0, 1, 3])
def test_a_searched_setting_is_that_of_every_loader(monkeypatch: pytest.MonkeyPatch, before: int, wanted: int) -> None:
    """Fewer workers too, and none: then without the arguments that torch refuses there."""
    given = {"prefetch_factor": 5, "persistent_workers": True, "timeout": 9} if before else {}
    made, said = settled(monkeypatch, "loader_workers", {"workers": wanted, "prefetch": 4}, list(range(6)),
                         num_workers=before, **given)  # fmt: skip
    assert (made.num_workers, made.prefetch_factor) == (wanted, 4 if wanted else None) and not said
    if not wanted:
        assert sorted(int(each) for each in made) == list(range(6))


def test_one_worker_takes_batches_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = settled(monkeypatch, "one_worker", {"prefetch": 6}, [1, 2], num_workers=1)
    assert (made.num_workers, made.prefetch_factor) == (1, 6)


@pytest.mark.parametrize(
    ("remedy", "options", "before"),
    [("loader_workers", {"workers": 2, "prefetch": 2}, 0), ("loader_workers", {"workers": 2, "prefetch": 2}, 1),
     ("loader_workers", {"workers": 0, "prefetch": 2}, 3), ("loader_workers", {"workers": 3, "prefetch": 2}, 2),
     ("one_worker", {"prefetch": 2}, 2), ("loader_workers", {"workers": 2}, 0)],
)  # fmt: skip
def test_no_search_makes_a_stream_come_twice(
    monkeypatch: pytest.MonkeyPatch, remedy: str, options: dict[str, int], before: int
) -> None:
    """Two workers read it twice; several that the program has may share it, and fewer would then each read a part."""
    made, said = settled(monkeypatch, remedy, options, Stream(), num_workers=before)
    assert made.num_workers == before and remedy in said


@pytest.mark.parametrize(
    ("remedy", "options", "before"),
    [("loader_workers", {"workers": 0, "prefetch": 2}, 1), ("loader_workers", {"workers": 1, "prefetch": 2}, 0),
     ("one_worker", {"prefetch": 2}, 0), ("one_worker", {"prefetch": 4}, 1),
     ("loader_workers", {"workers": 2, "prefetch": 4}, 2)],
)  # fmt: skip
def test_what_reads_a_stream_as_often_as_before_is_applied(
    monkeypatch: pytest.MonkeyPatch, remedy: str, options: dict[str, int], before: int
) -> None:
    made, said = settled(monkeypatch, remedy, options, Stream(), num_workers=before)
    plain = DataLoader(Stream(), num_workers=before)
    assert not said and (made.num_workers, made.prefetch_factor) != (before, plain.prefetch_factor)
    assert sorted(int(each) for each in made) == sorted(int(each) for each in plain)


def test_by_hand_no_workers_are_more_than_one_argument() -> None:
    assert LOADER.change_of_source({"workers": 0, "prefetch": 2}) is None
    assert LOADER.change_of_source({"workers": 3, "prefetch": 2}).value == "3"


def test_options_of_others_are_not_for_this_process() -> None:
    assert not registry.environment(["malloc_thresholds"], {"loader_workers": {"workers": 3}})


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("loader_workers", {"workers": -1}, "whole number from 0"),
        ("loader_workers", {"workers": 2, "prefetch": 0}, "whole number from 1"),
        ("loader_workers", {"workers": 10**6}, "whole number"),
        ("loader_workers", {"workers": True}, "whole number"),
        ("loader_workers", {"workers": "3; import os"}, "whole number"),
        ("loader_workers", {"threads": 3}, "takes no option 'threads'"),
        ("one_worker", {"workers": 1}, "takes no option"),
    ],
)
def test_options_from_files_are_checked(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(GobrrrError, match=said):
        registry.environment([name], {name: options})


def receipt(**fields: Any) -> Receipt:
    speedup = Speedup(1.5, 1.4, 1.6)
    fields = {"kept": ("loader_workers", "fused_optimizer"), **fields}
    return Receipt(speedup=speedup, command=("python", "train.py"), **fields)


def test_a_recipe_says_how_many_and_old_ones_still_hold(tmp_path: Path) -> None:
    found = recipe_of(receipt(options={"loader_workers": {"workers": 3}}))
    text = recipes.to_toml(found)
    assert "[remedies.options]\nworkers = 3\n" in text
    file = tmp_path / "recipe.toml"
    file.write_text(text)
    assert recipes_read.read(file).options == {"loader_workers": {"workers": 3}}
    file.write_text(text.replace("workers = 3", "workers = -3"))
    with pytest.raises(GobrrrError, match="whole number from 0"):
        recipes_read.read(file)
    old = recipes.to_toml(recipe_of(receipt()))
    file.write_text(old)
    assert "options" not in old and recipes_read.read(file).options == {}


def test_the_patch_has_the_number_that_was_measured(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from torch.utils.data import DataLoader\n\nloader = DataLoader(data, batch_size=4)\n")
    options = options_of(["loader_workers", "fused_optimizer"], report(workers=3))
    seen = {"loader_workers": ("train.py:3",)}

    def patch(**said: Any) -> str:
        return by_hand(receipt(**said, places=seen), ["python", "train.py"], tmp_path, report())

    assert options == {"loader_workers": {"workers": 3}}
    assert "num_workers=3" in patch(options=options)
    script.write_text(script.read_text().replace("=4", "=4, num_workers=5"))
    assert patch(options=options) == ""
    searched = {"loader_workers": {"workers": 3, "prefetch": 2}}
    assert "num_workers=3" in patch(options=searched)
    script.write_text(script.read_text().replace(", num_workers=5", ""))
    assert f"num_workers={vitals.cores()}" in patch()


LOADERS = """from torch.utils.data import DataLoader

train = DataLoader(rows, batch_size=4)
valid = DataLoader(
    rows_of_a_file, batch_size=8)
first, second = DataLoader(rows), DataLoader(rows)
"""


@pytest.mark.parametrize(
    ("lines", "patched"), [((3,), [3]), ((3, 4), [3, 5]), ((), []), ((6,), []), ((1, 5, 99), [])], ids=str
)
def test_the_patch_changes_the_loaders_that_were_measured_with_workers(
    lines: tuple[int, ...], patched: list[int], tmp_path: Path
) -> None:
    """The remedy had left one alone, whose data set holds an open file: with workers by the patch it read other rows.
    Of two on one line nobody knows which was meant."""
    (tmp_path / "train.py").write_text(LOADERS)
    (tmp_path / "more.py").write_text(LOADERS)
    for name in ("loader_workers", "pin_memory"):
        places = {name: (*(f"train.py:{line}" for line in lines), "no line")}
        text = by_hand(receipt(kept=(name,), places=places), ["python", "train.py"], tmp_path, report())
        added = [each[1:] for each in text.splitlines() if each.startswith("+") and not each.startswith("+++")]
        assert len(added) == len(patched) and "more.py" not in text
        kept = [each for number, each in enumerate(LOADERS.splitlines(), 1) if number in patched]
        assert all(new.startswith(old[:-1]) for new, old in zip(added, kept, strict=True))


def test_the_patch_changes_an_optimizer_wherever_it_was_met(tmp_path: Path) -> None:
    """The remedy takes hold at its first step, which is another line than the one that makes it."""
    (tmp_path / "train.py").write_text("import torch\n\noptimizer = torch.optim.AdamW(weights)\noptimizer.step()\n")
    said = receipt(kept=("fused_optimizer",), places={"fused_optimizer": ("train.py:4",)})
    assert "AdamW(weights, fused=True)" in by_hand(said, ["python", "train.py"], tmp_path, report())
