"""The twelve evaluations, and how the gate's trials on them are made and counted."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.lossy import __main__ as lossy
from benchmarks.lossy import gate, hand
from benchmarks.lossy.cases import BY_NAME, CASES
from benchmarks.lossy.train import TRAINERS

PRINTED = {
    "resnet": ("32 images, accuracy: 87.50%", 87.5),
    "mobilenet": ("error: 3.21 %", 3.21),
    "vgg": (" * Acc@1 91.250 Acc@5 99.000", 91.25),
    "bert": ("{'accuracy': 0.7512}", 0.7512),
    "vit": ("  eval_accuracy = 0.9123\n  eval_loss     = 0.3", 0.9123),
    "gpt2": ("eval loss 1.9876  perplexity 7.2980", 7.298),
    "whisper": ("note error rate: 12.50% of 96 notes", 12.5),
    "t5": ('{"eval_loss": 1.5, "eval_perplexity": 4.4817}', 4.4817),
    "recommender": ("HR@10: 0.6125\tNDCG@10: 0.3501", 0.6125),
    "lstm": ("| end of evaluation | test bpc   2.5012 |", 2.5012),
    "diffusion": ("eval mse=0.10345 over 50 patches", 0.10345),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_program_is_one_that_people_write_and_its_gate_reads_it(case: object, tmp_path: Path) -> None:
    tree = ast.parse(case.script.read_text(encoding="utf-8"))  # type: ignore[attr-defined]
    source = ast.unparse(tree)
    assert any(isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) for node in tree.body)
    assert ".eval()" in source and "gobrrr" not in source and ("no_grad" in source or "inference_mode" in source)
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} | {
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert set(case.loads) <= names  # type: ignore[attr-defined]
    if case.name == "mlp":  # type: ignore[attr-defined]
        (tmp_path / "metrics.json").write_text('{"test": {"f1": 0.91}}')
        assert case.gate.value("", tmp_path, 0)[0] == 0.91  # type: ignore[attr-defined]
    else:
        printed, value = PRINTED[case.name]  # type: ignore[attr-defined]
        assert case.gate.value(printed, tmp_path, 0)[0] == value  # type: ignore[attr-defined]


def test_there_are_twelve_and_each_is_trained() -> None:
    assert len(CASES) == 12 and set(TRAINERS) == set(BY_NAME)


def made_up(mean: float, seed: int) -> list[float]:
    draw = random.Random(seed)
    return [round(draw.gauss(mean, 2.0), 2) for _ in range(60)]


def test_trials_are_judged_and_counted_by_what_is_truly_lost() -> None:
    case, plain = BY_NAME["resnet"], made_up(90.0, 1)  # a point may be lost
    edits = {"same": 0.1, "half": 0.7, "bad": 1.5, "ruin": 8.0}
    found = [
        gate.tried(case, name, plain, [round(value - lost + random.Random(i).gauss(0, 0.3), 2)
                                       for i, value in enumerate(plain)], trials=5)
        for name, lost in edits.items()
    ]  # fmt: skip
    assert [each.kind for each in found] == ["honest", "between", "sabotaged", "sabotaged"]
    assert found[3].loss == pytest.approx(8.0, abs=0.2)
    honest, bad = gate.counts(found[:1]), gate.counts(found[2:])
    assert honest["trials"] == honest["accepted"] == 5 and honest["pairs"] >= 4
    assert bad["trials"] == bad["refused"] == 10 and bad["accepted"] == 0
    text = gate.table(found, {key: "x" for key in ("date", "cpu", "cores", "python", "torch")}, "made up")
    assert "| sabotaged: more than the allowance lost | 2 | 10 | 0 | 10 | 0 | 0 |" in text
    assert "| of these, at most twice the allowance | 1 | 5 | 0 | 5 | 0 | 0 |" in text


def test_a_smaller_measure_may_be_better() -> None:
    case = BY_NAME["gpt2"]  # 1 % more may be lost
    assert gate.loss(case.gate, [10.0, 10.0], [10.1, 10.3]) == pytest.approx(2.0)
    assert gate.loss(case.gate, [10.0], [9.9]) == pytest.approx(-1.0)


def test_the_strength_sought_is_found() -> None:
    known: dict[float, float] = {}
    asked: list[float] = []

    def lost(much: float) -> float:
        asked.append(much)
        return 50 * much**2

    assert gate.strength(known, lost, 1.5) == pytest.approx((1.5 / 50) ** 0.5, rel=0.05)
    first = len(asked)
    assert gate.strength(known, lost, 1.7) == pytest.approx((1.7 / 50) ** 0.5, rel=0.05)
    assert len(asked) - first < first, "what is known is not asked again"


def test_the_best_by_hand_is_within_its_gate() -> None:
    forms = {"a": hand.Form(3.0, 2.9, 3.1, 0.5, 1.4), "b": hand.Form(2.0, 1.9, 2.1, 0.9, 0.2), "c": "TypeError: no"}
    assert hand.best(forms) == ("b", 2.0) and hand.best({"c": "failed"}) == ("as it is", 1.0)
    assert lossy.mean([1.0, 4.0]) == pytest.approx(2.0) and lossy.mean([]) == 1.0
    told = {name: form if isinstance(form, str) else form._asdict() for name, form in forms.items()}
    row = {"ms": 1.0, "value": 1.0, "best": ["b", 2.0], "forms": told}
    head = {key: "x" for key in ("date", "cpu", "cores", "load", "python", "torch")}
    text = lossy.hand_table({"bert": row}, head)
    assert "2.00 (1.90 to 2.10), loses +0.20" in text and "Geometric mean of the best of 1: 2.00" in text
