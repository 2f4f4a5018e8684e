"""Receipt and recipe: written, read back, and refused in one line where they are not what they should be."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.cli import recipe as at_a_run
from gobrrr.errors import GobrrrError
from gobrrr.machine.probe.fingerprint import of_hardware
from gobrrr.machine.probe.system_probe import probe
from gobrrr.pipeline.tuning import recipe_of
from gobrrr.rules.model.finding import Saving
from gobrrr.trial.receipt import receipt, recipe
from gobrrr.trial.receipt.receipt import Guarded, Receipt, Samples, Speedup, TrialResult
from gobrrr.trial.receipt.recipe import Fits, Ingredient, Recipe

TRIAL = TrialResult(
    remedies=("fused_optimizer",), verdict="faster", speedup=Speedup(1.2, 1.15, 1.25), guard=Guarded("equivalent"),
    predicted=Saving(1.0, 2.0, 3.0), samples=Samples((0, 1, 1, 0), (5, 5, 5, 5), (10, 8, 8, 10)),
)  # fmt: skip
RECEIPT = Receipt(trials=(TRIAL,), kept=("fused_optimizer",), speedup=Speedup(1.2, 1.15, 1.25))
RECIPE = Recipe(
    schema=recipe.SCHEMA, program="train.py", speedup=(1.2, 1.1, 1.3), guard="equivalent",
    fits=Fits(torch="2.13.0", fingerprint="abc"),
    remedies=(
        Ingredient("malloc_thresholds", {"mmap": 1 << 30}, (1.1, 1.0, 1.2), "exact"),
        Ingredient("fused_optimizer"),
    ),
)  # fmt: skip


def test_a_receipt_comes_back_as_it_was(tmp_path: Path) -> None:
    receipt.write(RECEIPT, tmp_path / "receipt.json")
    assert receipt.read(tmp_path / "receipt.json") == RECEIPT
    assert [file.name for file in tmp_path.iterdir()] == ["receipt.json"]


def test_the_receipt_has_the_shape_that_others_read(tmp_path: Path) -> None:
    """docs: design of the house, schema gobrrr.receipt/1."""
    receipt.write(RECEIPT, tmp_path / "receipt.json")
    raw = json.loads((tmp_path / "receipt.json").read_text())
    assert raw["schema"] == "gobrrr.receipt/1" and raw["kept"] == ["fused_optimizer"]
    assert raw["speedup"] == {"median": 1.2, "low": 1.15, "high": 1.25}
    (trial,) = raw["trials"]
    assert {"remedies", "verdict", "speedup", "guard", "samples"} <= set(trial)
    assert trial["guard"]["verdict"] == "equivalent" and trial["samples"]["ns"] == [10, 8, 8, 10]


@pytest.mark.parametrize("verdict", ["changed", "unverified", "wrong", "", "pass"])
def test_only_three_verdicts_of_the_guard_are_green(verdict: str) -> None:
    assert not Guarded(verdict).green
    assert all(Guarded(green).green for green in ("exact", "equivalent", "bounded"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "gobrrr.receipt/9"}', '{"trials": 3}', "[" * 100_000])
def test_what_is_no_receipt_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "receipt.json").write_text(text)
    with pytest.raises(GobrrrError) as caught:
        receipt.read(tmp_path / "receipt.json")
    assert "receipt.json" in caught.value.message and "\n" not in caught.value.message
    with pytest.raises(GobrrrError):
        receipt.read(tmp_path / "absent.json")


def test_a_recipe_comes_back_as_it_was() -> None:
    assert recipe.parse(recipe.to_toml(RECIPE), "recipe.toml") == RECIPE


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(TEXT, st.dictionaries(TEXT, st.one_of(TEXT, st.integers(-(2**62), 2**62), st.booleans())))
def test_any_text_survives(program: str, options: dict[str, str | int | bool]) -> None:
    strange = Recipe(schema=recipe.SCHEMA, program=program, remedies=(Ingredient("malloc_thresholds", options),))
    assert recipe.parse(recipe.to_toml(strange), "recipe.toml") == strange


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "schema"),
        ("schema = ", "no recipe"),
        ('schema = "gobrrr.recipe/2"', "gobrrr.recipe/2"),
        ('schema = "gobrrr.recipe/1"\nrun = "rm"', "unknown field"),
        ('schema = "gobrrr.recipe/1"\n[[remedies]]\nname = "os.system"\ncode = "x"', "unknown field"),
        ('schema = "gobrrr.recipe/1"\n[[remedies]]\nname = "../../etc"', "no name of a remedy"),
        ('schema = "gobrrr.recipe/1"\n[[remedies]]\nname = "__import__"', "no name of a remedy"),
        ('schema = "gobrrr.recipe/1"\n[[remedies]]\nname = "nonesuch"', "nonesuch, which is not known"),
        ('schema = "gobrrr.recipe/1"\n' + '[[remedies]]\nname = "malloc_thresholds"\n' * 2, "twice"),
        ('schema = "gobrrr.recipe/1"\n' + '[[remedies]]\nname = "malloc_thresholds"\n' * 65, "more than there are"),
        ('schema = "gobrrr.recipe/1"\n[[remedies]]\nname = "malloc_thresholds"\noptions = {a = [1]}', "no recipe"),
        ('schema = "gobrrr.recipe/1"\n[fits]\ntorch = 2', "no recipe"),
        ('schema = "gobrrr.recipe/1"\nx = ' + "[" * 900, "no recipe"),
        ('schema = "gobrrr.recipe/1"\n' + "a." * 20_000 + "a = 1", "a line of more than"),
        ('schema = "gobrrr.recipe/1"\nx = ' + "7" * 900, "no recipe"),
    ],
)
def test_what_is_no_recipe_is_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(GobrrrError) as caught:
        recipe.parse(text, "recipe.toml", frozenset({"malloc_thresholds"}))
    assert why in caught.value.message and "recipe.toml" in caught.value.message and "\n" not in caught.value.message


def test_a_number_that_python_does_not_read_is_no_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(_: str) -> object:
        raise ValueError("Exceeds the limit (640 digits) for integer string conversion")

    monkeypatch.setattr(recipe.tomllib, "loads", loads)
    with pytest.raises(GobrrrError, match="640 digits"):
        recipe.parse("x = 7", "recipe.toml")


def test_every_truncation_is_refused_or_a_shorter_recipe_and_never_another_error() -> None:
    text = recipe.to_toml(RECIPE)
    for end in range(len(text)):
        try:
            found = recipe.parse(text[:end], "recipe.toml")
        except GobrrrError:
            continue
        assert set(found.names) <= {*RECIPE.names, *(name[:n] for name in RECIPE.names for n in range(len(name)))}


def test_files_that_are_no_text_too_large_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"#" * (recipe.MAX_BYTES + 1))
    for name in ("bytes", "large", "absent", "."):
        with pytest.raises(GobrrrError):
            recipe.read(tmp_path / name)


def test_a_recipe_says_what_it_was_not_validated_on() -> None:
    same = Fits(torch="2.13.0", fingerprint="abc", model="m")
    assert recipe.misfits(RECIPE, same) == []
    other = recipe.misfits(RECIPE, Fits(torch="2.14.0", fingerprint="xyz"))
    assert len(other) == 2 and "2.13.0 then, 2.14.0 now" in other[0] and "not re-validated" in other[1]


def test_a_recipe_knows_the_machine_that_it_was_made_on() -> None:
    here, elsewhere = (
        msgspec.structs.replace(RECIPE, fits=Fits(fingerprint=mark)) for mark in (of_hardware(probe()), "0" * 16)
    )
    assert at_a_run.misfits(here, ["python", "train.py"]) == []
    (said,) = at_a_run.misfits(elsewhere, ["python", "train.py"])
    assert said.startswith("the machine is not the one it was measured with")
    assert recipe_of(msgspec.structs.replace(RECEIPT, fingerprint="abc")).fits.fingerprint == "abc"


def test_a_receipt_of_a_later_version_may_hold_more() -> None:
    raw = msgspec.json.decode(msgspec.json.encode(RECEIPT))
    raw["mood"] = "good"
    assert msgspec.convert(raw, Receipt) == RECEIPT
