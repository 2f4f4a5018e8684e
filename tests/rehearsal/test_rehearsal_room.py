"""Never more memory than half of what is free, wherever the limit is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gobrrr.rehearsal import callables, free_memory

PRODUCT = {"make": "op", "name": "aten::mm", "shapes": [[1000, 1000], [1000, 1000]], "dtypes": ["float", "float"]}


def system(tmp_path: Path, available_kib: int | None, limit: str = "max", used: int = 0) -> Path:
    (tmp_path / "proc").mkdir()
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    if available_kib is not None:
        (tmp_path / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {available_kib} kB\n")
    (tmp_path / "sys/fs/cgroup/memory.max").write_text(limit)
    (tmp_path / "sys/fs/cgroup/memory.current").write_text(str(used))
    return tmp_path


@pytest.mark.parametrize(
    ("free", "limit", "used", "refused"),
    [(1 << 20, "max", 0, False), (90_000, "max", 0, True), (1 << 20, "100000000", 20_000_000, True)],
)
def test_half_of_what_is_free_is_the_most(tmp_path: Path, free: int, limit: str, used: int, refused: bool) -> None:
    parts = [{"today": PRODUCT, "then": PRODUCT}]  # 8 MB each, and their results and scratch
    assert bool(free_memory.refusal(None, "cpu", parts, system(tmp_path, free, limit, used))) == refused


def test_the_limit_of_a_group_further_down_holds(tmp_path: Path) -> None:
    root = system(tmp_path, 1 << 20)
    (root / "proc/self").mkdir()
    (root / "proc/self/cgroup").write_text("0::/slice/unit\n")
    (group := root / "sys/fs/cgroup/slice").mkdir()
    (group / "memory.max").write_text("100000000")
    (group / "memory.current").write_text("60000000")
    assert free_memory.free(None, "cpu", root) == 40_000_000


@pytest.mark.parametrize(
    ("shape", "strides", "laid", "spans"),
    [
        ([256, 2048], [5_859_375, 1], [2048, 1], 256 * 2048),  # rows of a mapped file
        ([8, 64, 256], [64 * 768, 768, 1], [64 * 768, 768, 1], (8 * 64 - 1) * 768 + 256),  # q of a fused q, k, v
        ([2048, 256], [1, 5_859_375], [1, 2048], 256 * 2048),  # the order of the dimensions stays
        ([100, 64], [0, 1], [0, 1], 64),  # what is expanded stays so
        ([3, 4], [], [4, 1], 12),
        ([0, 4], [4, 1], [4, 1], 0),
        ([], [], [], 1),
    ],
)
def test_what_lies_far_apart_is_made_dense(shape: list[int], strides: list[int], laid: list[int], spans: int) -> None:
    assert callables.affordable(shape, strides) == laid and callables.span(shape, laid) == spans


def test_a_result_may_be_larger_than_all_inputs() -> None:
    column = {
        "make": "op",
        "name": "aten::add",
        "shapes": [[10_000, 1], [10_000], []],
        "dtypes": ["float", "float", ""],
    }
    outer = {"make": "op", "name": "aten::mm", "shapes": [[10_000, 1], [1, 10_000]], "dtypes": ["float", "float"]}
    assert (
        min(free_memory.needs(column), free_memory.needs(outer))
        > 4e8
        > free_memory.needs({**outer, "shapes": [[1, 10_000], [10_000, 1]]})
    )


def test_a_stage_that_takes_more_than_thought_is_refused_it() -> None:
    code = (
        "from gobrrr.rehearsal import free_memory\nfree_memory.free_memory = lambda root: 4e8\n"
        "free_memory.confine('cpu')\n"
        "kept = bytearray(10**8)\ntry: bytearray(3 * 10**8)\nexcept MemoryError: print('refused')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ("refused" if sys.platform == "linux" else "")


def test_what_is_not_known_is_not_taken(tmp_path: Path) -> None:
    assert "cannot be told" in free_memory.refusal(None, "cpu", [], system(tmp_path, None))


@pytest.mark.parametrize(
    ("side", "least"),
    [
        (None, 0),
        ({"make": "cast", "elements": 1000, "source": "float", "target": "c10::BFloat16"}, 6000),
        ({"make": "optimizer", "tensors": [[[100, 10], 3]]}, 4 * 4 * 3000),
        ({"make": "attention", "dims": [2, 4, 128, 128, 64]}, 4 * 4 * 2 * 4 * 128 * 128),
        ({"make": "loss", "dims": [100, 64, 5000]}, 4 * 4 * 100 * 5000),
    ],
)
def test_every_maker_says_what_it_takes(side: dict[str, Any] | None, least: float) -> None:
    assert free_memory.needs(side) >= least
