"""One side of a trial, its arm played by a fake: what it keeps when the process is started anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gobrrr.trial.arm import Block
from gobrrr.trial.lockstep import Side


class FakeArm:
    """Steps of one length; `graphs` so many after each block."""

    def __init__(self, graphs: Sequence[int]) -> None:
        self.applied: dict[str, str] = {}
        self.start_seconds, self.peak_bytes = 1.0, 0
        self._graphs = iter(graphs)

    def start(self, seconds: float = 0.0) -> None:
        """At once."""

    def run(self, steps: int, expected_ns: float | None = None) -> Block:
        """Warming up counts no graphs."""
        return Block(steps * 1000, (1000,) * steps, (next(self._graphs), 0) if expected_ns is not None else None)

    def end(self) -> None:
        """At once."""

    def resident(self) -> int:
        """Nothing."""
        return 0


def recompiled(tmp_path: Path, *processes: Sequence[int]) -> int:
    arms = iter(FakeArm(graphs) for graphs in processes)
    side = Side(lambda _: next(arms), tmp_path, ())
    for graphs in processes:
        for _ in graphs:
            side.block(10)
        side.end()
    assert side.compiled is not None and side.compiled.graphs == processes[-1][-1]
    return side.compiled.recompiled


def test_graphs_made_anew_are_counted_within_a_process(tmp_path: Path) -> None:
    assert recompiled(tmp_path, (2, 2, 2), (3, 3)) == 0  # another process made one more before its first block ended
    assert recompiled(tmp_path, (2, 4), (2, 2)) == 2  # only the first one recompiled: not forgotten
    assert recompiled(tmp_path, (4, 4), (2, 3)) == 1
