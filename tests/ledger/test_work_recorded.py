"""Work per op against a recording of OpInfo: FLOPs of torch.utils.flop_counter, bytes counted behind the tensors.

What ops/test_opinfo_work.py asks of the torch that is installed, on fewer samples; here every op, in a second,
without torch. `python -m tests.ledger.ops.recorded` wrote the file.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gobrrr.ledger.work import work_of
from tests.ledger.ops.agreement import AT_MOST, agrees

FILE = Path(__file__).parent / "ops" / "opinfo-calls.json.gz"


class Seen(NamedTuple):
    """A call as the profiler records it, what flop_counter says, and bytes: read by argument, written."""

    name: str
    shapes: list[Any]
    dtypes: list[str]
    concrete: list[str]
    strides: list[Any]
    inner: list[list[int]]
    flops: float | None
    reads: dict[str, int]
    writes: int


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


SEEN = [Seen(*row) for row in json.loads(gzip.decompress(FILE.read_bytes()))["calls"]]
PRICED = [(s, work) for s in SEEN if (work := work_of(s.name, *map(_tuples, s[1:5]), inner=_tuples(s.inner)))]


def test_flops_are_those_of_flop_counter() -> None:
    known = [(s, work.flops) for s, work in PRICED if s.flops is not None]
    assert len({s.name for s, _ in known}) >= 8
    assert [(s, flops) for s, flops in known if flops != s.flops] == []


def test_bytes_are_those_behind_the_tensors() -> None:
    wrong = [
        (s, work.bytes)
        for s, work in PRICED
        if work.kind != "view"
        and not agrees(s.name.removeprefix("aten::"), work.bytes, {int(i): n for i, n in s.reads.items()}, s.writes)
    ]
    assert wrong == []


def test_nearly_every_call_is_priced() -> None:
    assert len(PRICED) >= 0.98 * len(SEEN) > 2000


@pytest.mark.parametrize("name", sorted(AT_MOST))
def test_what_may_cost_less_costs_something(name: str) -> None:
    """Writes of tensors that are not small are no guess: what an index skips is read less, not written less."""
    rows = [(s, work) for s, work in PRICED if s.name == f"aten::{name}"]
    assert all(work.bytes > 0 for s, work in rows if s.writes > 64), rows[:2]
