"""Waiting and transfer of collectives on several ranks, against traces whose truth is known."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

import pytest

from gobrrr.cli.diagnose import diagnose
from gobrrr.ledger.ranks import Job
from tests.diagnose.grown import Grown, grow_ranks

US = 1000.0
SEEDS = 30


def job_of(ranks: list[Grown], folder: Path) -> Job:
    for rank in ranks:
        rank.write(folder / f"rank{rank.rank}.json")
    job = diagnose([str(folder)])
    assert isinstance(job, Job)
    return job


def per_step(rank: Grown, us: float) -> float:
    """ns in the median step, whose share the total is of all steps."""
    walls = rank.walls()
    return US * us / sum(walls) * statistics.median(walls)


def last_ones(ranks: list[Grown]) -> Counter[int]:
    """Which rank began last in each call, more than 10 us after the one before it."""
    found: Counter[int] = Counter()
    for begins in zip(*([begin for begin, _, _ in rank.met] for rank in ranks), strict=True):
        before, last = sorted(begins)[-2:]
        if last - before > 10:
            found[begins.index(last)] += 1
    return found


@pytest.mark.parametrize("told", ["numbered", "named", "bare"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_waiting_and_transfer_are_those_planted(seed: int, told: str, tmp_path: Path) -> None:
    """Of every rank, within 1 %, on clocks that differ by up to a second; in all and with nothing beside it."""
    ranks = grow_ranks(seed, named=told != "bare", numbered=told == "numbered")
    (group,) = job_of(ranks, tmp_path).groups
    assert group.calls == len(ranks[0].met)
    found = {one.rank: one for one in group.waits}
    transfers = []
    for rank in ranks:
        waiting, transfer, bare_waiting, bare_transfer = (per_step(rank, us) for us in rank.waited())
        one = found[rank.rank]
        assert one.waiting_ns == pytest.approx(waiting, rel=0.01, abs=US)
        assert one.exposed_waiting_ns == pytest.approx(bare_waiting, rel=0.01, abs=US)
        assert one.exposed_transfer_ns == pytest.approx(bare_transfer, rel=0.01, abs=US)
        transfers.append(transfer)
    assert group.transfer_ns == pytest.approx(statistics.median(transfers), rel=0.01)
    assert +Counter({one.rank: one.last for one in group.waits}) == last_ones(ranks)
    assert any("do not number" in doubt for doubt in group.doubts) is (told != "numbered")
