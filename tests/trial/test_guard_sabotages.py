"""Every sabotage of the guard's bench spoils something that outlasts rounding; one without effect would be no exam."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import sys
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._pytree import tree_leaves

from benchmarks import guard_programs, guard_sabotages
from benchmarks.guard_sabotages.switch import Clock, made
from gobrrr.remedies import registry
from gobrrr.remedies.mechanism.applying import install
from gobrrr.remedies.mechanism.seams import Seams

ONSET = 6
NUM = {"text": 14, "serve": 4, "score": 14}
"""Updates or requests; four of `serve` are twenty calls."""


def run(program: str, fault: str, place: Path) -> None:
    """In a process of its own: what the program printed, saved and answered is left in `place`."""
    os.chdir(place)
    torch.set_num_threads(1)
    answers: list[Any] = []
    if fault:
        registry.remedy = lambda name: made(guard_sabotages.TABLE[name], ONSET)()
        install(Seams(), [fault])
    if program != "text":
        register_module_forward_hook(
            lambda module, _, found: answers.append(found) if hasattr(module, "head") else None
        )
    spec = spec_from_file_location("program", Path(next(iter(guard_programs.__path__))) / f"{program}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["__main__"] = module_from_spec(spec)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        spec.loader.exec_module(module)
        module.main(NUM[program])
    Clock.onset = sys.maxsize
    torch.save(answers, "answers.pt")
    Path("printed").write_text(printed.getvalue())


def left(program: str, fault: str, place: Path) -> tuple[str, list[Any]]:
    """What was printed, and all tensors."""
    child = multiprocessing.get_context("fork").Process(target=run, args=(program, fault, place))
    child.start()
    child.join()
    assert child.exitcode == 0
    return (place / "printed").read_text(), tree_leaves([torch.load(file) for file in sorted(place.glob("*.pt"))])


@lru_cache
def plain(program: str, place: Path) -> tuple[str, list[Any]]:
    """The program as it is, run once."""
    place.mkdir()
    return left(program, "", place)


def are_close(ours: list[Any], others: list[Any]) -> bool:
    """Up to rounding."""
    return len(ours) == len(others) and all(
        a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-6)
        for a, b in zip(ours, others, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", guard_sabotages.TABLE)
def test_a_sabotage_has_an_effect(fault: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    program = guard_sabotages.TABLE[fault].program
    printed, tensors = plain(program, tmp_path_factory.getbasetemp() / f"plain-{program}")
    spoiled, others = left(program, fault, tmp_path)
    assert spoiled != printed or not are_close(tensors, others)


@pytest.mark.slow
@pytest.mark.parametrize("program", NUM)
def test_the_sabotaged_programs_repeat_themselves(
    program: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    printed, tensors = plain(program, tmp_path_factory.getbasetemp() / f"plain-{program}")
    again, others = left(program, "", tmp_path)
    assert again == printed and are_close(tensors, others)
