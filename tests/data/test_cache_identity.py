"""Whose samples a folder holds: what a fingerprint sees, and what is random is not computed once."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gobrrr.data.sample_cache.fingerprints import digest

PROGRAM = '''
import functools, logging, re, sys
import numpy as np, torch
logger = logging.getLogger(__name__)
LENGTH = 5
WORD = re.compile("[a-z]+")

def helper(text):
    """What it does."""
    return text[:LENGTH]

class Texts:
    words = {"b", "a", "c"}
    rows = [{"of": {"b", "a", "c"}}]
    def __init__(self, texts, scale=1.0):
        self.texts, self.scale = texts, scale
        self.weights = np.arange(3.0)
        self.bias = torch.zeros(2)
        self.me = self
    def __len__(self):
        return len(self.texts)
    def __getitem__(self, index):
        logger.debug("one")
        return [w for w in WORD.findall(helper(self.texts[index])) if w in {"x", "y", "z", "hello"}]

def factory(factor):
    return lambda sample: (sample, factor)

dataset = Texts(["hello", "you"])
function = functools.partial(factory(2), )
'''
TELL = "\nfrom gobrrr.data.sample_cache.fingerprints import digest\nprint(digest(dataset), digest(function))\n"


def told(folder: Path, program: str, name: str = "program.py", seed: str = "0") -> tuple[str, ...]:
    import os

    path = folder / name
    path.write_text(program + TELL)
    env = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=env, check=False)
    assert not done.returncode, done.stderr
    return tuple(done.stdout.split())


def test_another_process_finds_the_same(tmp_path: Path) -> None:
    first = told(tmp_path, PROGRAM)
    commented = PROGRAM.replace('"""What it does."""', '"""Another text."""').replace(
        "LENGTH = 5", "LENGTH = 5  # five"
    )
    assert first == told(tmp_path, commented, "other.py", seed="7")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LENGTH = 5", "LENGTH = 6"),
        ("text[:LENGTH]", "text[1:LENGTH]"),
        ('"[a-z]+"', '"[a-y]+"'),
        ("scale=1.0", "scale=1.5"),
        ('["hello", "you"]', '["hello", "yoo"]'),
        ("np.arange(3.0)", "np.arange(3.0) + 1"),
        ("torch.zeros(2)", "torch.ones(2)"),
        ('"z", "hello"}', '"z", "hallo"}'),
        ('words = {"b", "a", "c"}', 'words = {"b", "a", "d"}'),
        ("if w in", "if w not in"),
        ('logger.debug("one")', 'logger.info("one")'),
    ],
)
def test_what_changes_the_samples_changes_it(tmp_path: Path, old: str, new: str) -> None:
    assert old in PROGRAM
    spaces: list[dict[str, Any]] = []
    for program in (PROGRAM, PROGRAM.replace(old, new)):
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(textwrap.dedent(program), "program", "exec"), space)
        spaces.append(space)
    assert digest(spaces[0]["dataset"]) != digest(spaces[1]["dataset"])


def add(number: int, sample: Any) -> Any:
    return sample + number


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a: int) -> None:
        self.a = a


class Own(list):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (functools.partial(add, 1), functools.partial(add, 2)),
        (Slotted(1), Slotted(2)),
        (Own([1]), Own([2])),
        ([1, True], [True, 1]),
        (["a"] * 20_001, ["a"] * 20_000 + ["b"]),
        (["a", None, object], ["a", None, int]),
        ([{"a": [1]}], [{"a": [2]}]),
        ([{"a": {"x", "y"}}], [{"a": {"x", "z"}}]),
        ([{"a": np.ones(1)}], [{"a": np.zeros(1)}]),
        (bytearray(b"a"), bytearray(b"b")),
        (torch.utils.data.Subset([1, 2], [0]), torch.utils.data.Subset([1, 2], [1])),
        (Path("a"), Path("b")),
        (np.float32(1), np.float64(1)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
    ],
)
def test_values_are_seen(one: Any, other: Any) -> None:
    assert digest(one) != digest(other) and digest(one) == digest(one)


def test_what_cannot_be_pickled_or_holds_files_has_a_fingerprint(tmp_path: Path) -> None:
    import threading

    class Holds:
        def __init__(self) -> None:
            self.file = (tmp_path / "open").open("w")
            self.lock = threading.Lock()
            self.draw = random.Random()
            self.call = lambda x: x

    assert digest(Holds()) == digest(Holds())
