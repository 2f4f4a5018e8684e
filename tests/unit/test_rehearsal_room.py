"""Never more memory than half of what is free, wherever the limit is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gobrrr.rehearsal import room

PRODUCT = {"make": "op", "shapes": [[1000, 1000], [1000, 1000]], "dtypes": ["float", "float"]}


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
    assert bool(room.refusal(None, "cpu", parts, system(tmp_path, free, limit, used))) == refused


def test_what_is_not_known_is_not_taken(tmp_path: Path) -> None:
    assert "cannot be told" in room.refusal(None, "cpu", [], system(tmp_path, None))


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
    assert room.needs(side) >= least
