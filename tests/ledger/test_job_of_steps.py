"""The job of ranks whose steps are known: its headline, and ranks that do the same work."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gobrrr.ledger.job.blame import LineTime
from gobrrr.ledger.job.lateness import Group
from gobrrr.ledger.job.ranks import Job, RankSummary, together
from gobrrr.recording.model.facts import Span
from gobrrr.report.told.job import told
from tests.ledger import test_culprits
from tests.ledger.test_culprits import COMMUNICATION, MS, job

HERE = Span("/w/train.py", 14)


def ranks(*more: tuple[int, str, float], num: int = 4) -> list[RankSummary]:
    lines = ((LineTime(HERE, sum(ms for at, _, ms in more if at == rank) * MS),) for rank in range(num))
    more_ms = [sum(ms for at, _, ms in more if at == rank) for rank in range(num)]
    return [
        RankSummary(
            source=f"{rank}.json",
            rank=rank,
            world_size=num,
            steps=steps,
            lines=own,
            step_ns=40 * MS,
            exposed_communication_ns=(27 - more_ms[rank]) * MS,
        )
        for rank, (steps, own) in enumerate(zip(job(num, *more), lines, strict=True))
    ]


def test_a_straggler_is_the_headline_with_its_line() -> None:
    found = together(ranks((2, "other", 5.0)))
    assert (found.bound, found.slowest, found.because) == ("straggler", 2, "other")
    assert found.verdict.startswith("Straggler: rank 2 works 4.9") and "at train.py:14" in found.verdict
    assert len(found.verdict.split()) <= 25
    late, *others = sorted(found.ranks, key=lambda rank: -rank.local_ns)
    assert late.rank == 2 and late.exposed_communication_ns == pytest.approx(COMMUNICATION * MS, rel=0.2)
    assert all(rank.exposed_communication_ns > 6 * MS for rank in others), "they wait"
    assert all(rank.steps is None and rank.lines == () for rank in found.ranks), "no longer needed"


def test_healthy_ranks_are_bound_by_communication_or_balanced() -> None:
    found = together(ranks())
    assert (found.bound, found.slowest, found.blames) == ("communication", None, ())
    assert found.shared is not None and "communication takes 13" in found.verdict


def test_a_small_surplus_beside_much_communication_is_told_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_culprits, "COMMUNICATION", 20.0)
    found = together(ranks((2, "other", 3.0)))
    assert found.bound == "communication" and found.blames[0].ranks == (2,) and "no rank is late" not in found.verdict


SAME = (11, 22, 33, 44)


@pytest.mark.parametrize(
    ("batches", "same"),
    [((SAME, SAME), True), ((SAME, (11, 22, 33)), True), ((SAME, (11, 22, 33, 45)), False), ((SAME, ()), False),
     (((7, 7, 7, 7), (7, 7, 7, 7)), False), ((SAME[:2], SAME[:2]), False)],
)  # fmt: skip
def test_ranks_with_the_same_batches_do_the_same_work(batches: tuple[tuple[int, ...], ...], same: bool) -> None:
    """Batches that are all equal are made by hand, and few may be so by chance."""
    found = together([replace(one, batches=own) for one, own in zip(ranks(num=2), batches, strict=True)])
    assert found.same_batches == same and ("DistributedSampler" in found.verdict) == same


def test_ranks_of_a_trace_are_judged_as_before() -> None:
    found = together([replace(one, steps=None) for one in ranks()])
    assert isinstance(found, Job) and found.shared is None and found.blames == ()


def test_nothing_of_a_job_is_lost_in_its_file() -> None:
    import msgspec

    found = together(ranks((2, "other", 5.0)))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Job) == found


@pytest.mark.parametrize(
    ("transfer_ms", "said"),
    [(0.1, ""), (1.5, "none of it is behind computing"), (4.0, "50.0 % of it is behind computing")],
)
def test_of_what_is_sent_that_which_the_step_does_not_show_is_hidden(transfer_ms: float, said: str) -> None:
    found = together(ranks())
    assert found.shared is not None and found.shared.communication_ns == pytest.approx(2 * MS, rel=0.1)
    shared = replace(found.shared, own_ns=13 * MS, imbalance_ns=0.0, step_ns=15 * MS)
    group = Group(group="", ranks="all ranks", size=4, transfer_ns=transfer_ms * MS)
    lines = [line for fact in told(replace(found, shared=shared, groups=(group,))) if fact.label == "hidden"
             for line in fact.lines]  # fmt: skip
    assert bool(lines) == bool(said) and all(str(line).endswith(said) for line in lines)


def test_what_makes_all_figures_unsure_is_told_before_them() -> None:
    doubted = replace(together(ranks()), doubts=("rank 0: threads waited for a core 72 % of the time (BRR905)",))
    assert told(doubted)[0].label == "doubts"
