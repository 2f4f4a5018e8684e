"""The examples run, learn, and their mended twins compute the same."""

from __future__ import annotations

import math
import runpy
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "gpt": "--length 48 --width 32 --heads 4 --layers 2 --batch-size 4 --documents 40 --lr 1e-3".split(),
    "images": "--width 4 --batch-size 32".split(),
}


def losses(example: str, program: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Run a program of an example in this process for so many steps."""
    monkeypatch.syspath_prepend(str(EXAMPLES / example))
    monkeypatch.delitem(sys.modules, "corpus", raising=False)
    names = runpy.run_path(str(EXAMPLES / example / f"{program}.py"))
    found: list[float] = names["train"](names["options"]([*SMALL[example], "--steps", str(steps)]))
    return found


@pytest.mark.parametrize("example", sorted(SMALL))
def test_mistakes_cost_time_and_change_no_loss(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sick, fixed = (losses(example, program, 3, monkeypatch) for program in ("train", "fixed"))
    assert len(sick) == len(fixed) == 3 and all(map(math.isfinite, sick))
    assert sick[0] == pytest.approx(fixed[0], rel=1e-6)  # the same samples, the same parameters
    assert sick == pytest.approx(fixed, rel=2e-3)  # Adam divides by gradients that are still tiny: rounding grows


@pytest.mark.parametrize("example", sorted(SMALL))
def test_the_loss_goes_down(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = losses(example, "fixed", 24, monkeypatch)
    assert sum(found[-3:]) < 0.95 * sum(found[:3])


def test_text_is_read_back_from_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "gpt"))
    corpus = runpy.run_path(str(EXAMPLES / "gpt" / "corpus.py"))
    texts = corpus["documents"](20, 400)
    tokenizer = corpus["Tokenizer"](texts)
    words = {number: word for word, number in tokenizer.ids.items()}
    for text in texts:
        ids = tokenizer.encode(text)
        assert "".join(words[number] for number in ids) == text
        assert len(ids) < 0.7 * len(text)
