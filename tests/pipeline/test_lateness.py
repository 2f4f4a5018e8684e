"""Waiting and transfer of collectives on several ranks, against traces whose truth is known."""

from __future__ import annotations

import dataclasses
import io
import random
import statistics
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from gobrrr.ledger.job.calls import (
    CALLS,
    NAMES,
    OF_ALL,
    ROW,
    Calls,
    GroupCalls,
    _bare,
    bare_in_the_last,
    calls_each,
    numbers,
)
from gobrrr.ledger.job.lateness import Told, lateness, linked
from gobrrr.ledger.job.ranks import Job, RankSummary, together
from gobrrr.pipeline.traces import diagnose
from gobrrr.recording.model.trace import Kernels
from gobrrr.report.forms.formats import show
from tests.pipeline.grown import COLLECTIVES, Grown, grow_ranks, meet
from tests.support.shown import as_comment

US = 1000.0
SEEDS = 30


def job_of(ranks: list[Grown], folder: Path) -> Job:
    for rank in ranks:
        rank.write(folder / f"rank{rank.rank}.json")
    job = diagnose([str(folder)])
    assert isinstance(job, Job)
    return job


def per_step(rank: Grown, us: float) -> float:
    """ns in the mean step."""
    return US * us / len(rank.walls())


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


PAIRS = (("a", (0, 1)), ("b", (2, 3)), ("b", (0, 2)), ("b", (1, 3)))
"""Groups of 2 x 2 ranks; those of one name are told apart by their ranks, also on one rank."""


@pytest.mark.parametrize("seed", range(5))
def test_every_process_group_is_split_by_itself(seed: int, tmp_path: Path) -> None:
    draw, ranks = random.Random(seed), [Grown(device=1, rank=i, world=4, clock=1000 * i) for i in range(4)]
    waited: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    moved: Counter[tuple[str, str]] = Counter()
    for _ in range(3):
        begins = [rank.now for rank in ranks]
        for name, pair in PAIRS * 2:
            for i in pair:
                ranks[i].op(15, draw.randrange(50, 900))
                ranks[i].python(draw.randrange(5, 900))
            said = ALL_REDUCE | {"Group size": 2, "Process Group Name": name, "Process Group Ranks": str(list(pair))}
            meet([ranks[i] for i in pair], transfer := draw.randrange(100, 900), said)
            moved[key := (name, str(list(pair)))] += transfer
            for i in pair:
                begin, end, _ = ranks[i].met[-1]
                waited[key][i] += end - begin - transfer
        for rank, begin in zip(ranks, begins, strict=True):
            rank.join(COLLECTIVES)
            rank.sync()
            rank.end_of_step(begin)
    groups = {(group.group, group.ranks): group for group in job_of(ranks, tmp_path).groups}
    assert groups.keys() == moved.keys()
    for key, group in groups.items():
        for one in group.waits:
            assert one.rank is not None
            assert one.waiting_ns == pytest.approx(per_step(ranks[one.rank], waited[key][one.rank]), rel=0.01, abs=US)
        scales = [per_step(ranks[one.rank], 1) for one in group.waits if one.rank is not None]
        assert group.transfer_ns == pytest.approx(statistics.median(scales) * moved[key], rel=0.01)


def test_groups_whose_ranks_a_file_does_not_say_are_told_apart_by_name(tmp_path: Path) -> None:
    ranks = [Grown(device=1, rank=i, world=2, clock=1000 * i) for i in range(2)]
    for _ in range(3):
        begins = [rank.now for rank in ranks]
        for name, transfer in (("a", 100), ("b", 700)):
            for rank in ranks:
                rank.op(15, 50)
            meet(ranks, transfer, ALL_REDUCE | {"Group size": 2, "Process Group Name": name})
        for rank, begin in zip(ranks, begins, strict=True):
            rank.join(COLLECTIVES)
            rank.sync()
            rank.end_of_step(begin)
    groups = {group.group: group.transfer_ns for group in job_of(ranks, tmp_path).groups}
    assert groups.keys() == {"a", "b"}
    assert groups["b"] == pytest.approx(7 * groups["a"], rel=0.05)


GROUP: dict[str, Any] = {"dtype": "Float", "Group size": 3, "Process Group Name": "0",
                         "Process Group Ranks": "[0, 1, 2]"}  # fmt: skip
ALL_REDUCE = GROUP | {"Collective name": "allreduce", "In msg nelems": 8 << 20, "Out msg nelems": 8 << 20}


def steps_of(
    num_ranks: int,
    late: int,
    transfer: int,
    said: dict[str, Any],
    num: int = 4,
    devices: int = 1,
    more: int = 0,
    sends: bool = False,
) -> list[Grown]:
    """Ranks that make the same steps, but that one prepares `late` us longer: the last rank. A transfer takes `more`
    us than that of the step before."""
    ranks = [Grown(device=1, rank=i, world=num_ranks, host_devices=devices) for i in range(num_ranks)]
    for step in range(num):
        begins = [rank.now for rank in ranks]
        for i, rank in enumerate(ranks):
            rank.op(15, 500)
            rank.python(600 + (late if i == num_ranks - 1 else 0))
        if sends:
            ranks[0].said = said | {"Collective name": "send"}
            ranks[0].collective(90)
        meet(ranks, transfer + more * step, said)
        for rank, begin in zip(ranks, begins, strict=True):
            rank.sync()
            rank.end_of_step(begin)
    return ranks


def test_a_late_rank_no_longer_makes_the_link_look_slow(tmp_path: Path) -> None:
    """32 MiB in 250 us are 179 GB/s on the bus of 3; with 20 ms of waiting two of three ranks see 2.2."""
    ranks = steps_of(3, 20_000, 250, ALL_REDUCE, devices=8)
    job = job_of(ranks, tmp_path)
    (group,) = job.groups
    (size,) = group.sizes
    assert size.bus_rate == pytest.approx(4 * (8 << 20) * 4 / 3 / 250e-6, rel=0.001)
    assert not group.slow and group.fits and "59.7 % of NVLink 3" in group.link
    assert (group.waits[0].rank, group.waits[0].last, group.together) == (2, 4, 0)
    assert all("BRR702" not in rank.codes for rank in job.ranks)
    alone = diagnose([str(tmp_path / "rank0.json")])
    assert not isinstance(alone, Job)
    (doubted,) = (found for found in alone.findings if found.code == "BRR702")
    assert doubted.saving.low_ns == 0 and "even the fastest waited for a later one" in doubted.advice


def test_a_slow_link_is_told_of_the_transfer(tmp_path: Path) -> None:
    job = job_of(steps_of(3, 100, 20_000, ALL_REDUCE, devices=8), tmp_path)
    (group,) = job.groups
    assert group.slow and "0.7 % of NVLink 3 (300 GB/s, NVIDIA A100" in group.link
    assert "- slow link: over the transfer" in as_comment(job) and all("BRR702" in rank.codes for rank in job.ranks)


def test_of_large_and_small_calls_the_large_ones_judge_the_link() -> None:
    """Small ones are slow over any link: 1000 of 4 KB that take longer than two of 64 MB at 128 GB/s."""
    small = [told(i, list(range(1000)), 1e6, size=4096.0) for i in range(2)]
    large = [told(i, list(range(1000, 1002)), 5e5, size=64e6) for i in range(2)]
    ranks = [both(a, b) for a, b in zip(small, large, strict=True)]
    (group,) = (linked(group, ranks) for group in lateness(ranks))
    assert [one.size for one in group.sizes] == [4096, 64e6]
    assert not group.slow and "42.7 % of NVLink 3" in group.link and "61.0 MiB" in group.link


def test_a_fast_small_call_does_not_speak_for_a_link_that_is_slow_with_large_ones() -> None:
    small = [told(i, list(range(1000)), 1e4, size=1e6) for i in range(2)]  # 100 GB/s
    large = [told(i, list(range(1000, 1002)), 64e6, size=64e6) for i in range(2)]  # 1 GB/s
    ranks = [both(a, b) for a, b in zip(small, large, strict=True)]
    (group,) = (linked(group, ranks) for group in lateness(ranks))
    assert group.slow and "61.0 MiB" in group.link


def test_small_calls_alone_judge_no_link() -> None:
    ranks = [told(i, list(range(1000)), 1e6, size=4096.0) for i in range(2)]
    (group,) = (linked(group, ranks) for group in lateness(ranks))
    assert not group.slow and "of NVLink 3" in group.link


def test_between_hosts_the_usual_range_is_told_and_nothing_judged(tmp_path: Path) -> None:
    (group,) = job_of(steps_of(3, 100, 20_000, ALL_REDUCE), tmp_path).groups  # each saw one device
    assert not group.slow and not group.fits and "between hosts 12.5 GB/s to 50.0 GB/s" in group.link


def test_a_rate_above_the_data_sheet_is_not_printed(tmp_path: Path) -> None:
    """32 MiB in 50 us are 895 GB/s."""
    (group,) = job_of(steps_of(3, 5000, 50, ALL_REDUCE), tmp_path).groups
    assert "GB/s" not in group.link and "not as the files say" in group.link and not group.sizes[0].bus_rate


def test_a_groups_name_is_a_strangers(tmp_path: Path) -> None:
    said = ALL_REDUCE | {"Process Group Name": "\x1b[31m<b>|x|</b>"}
    job = job_of(steps_of(3, 5000, 200, said), tmp_path)
    show(job, page := io.StringIO())
    shown = " ".join(page.getvalue().split())
    assert "\x1b" not in shown and "5.00 ms of waiting for the latest" in shown
    assert "<b>" not in as_comment(job) and "rank 2 to 4 of 4 calls (5.00 ms per step" in shown


def test_what_ranks_may_leave_early_is_not_split(tmp_path: Path) -> None:
    (group,) = job_of(steps_of(3, 5000, 200, ALL_REDUCE | {"Collective name": "broadcast"}), tmp_path).groups
    assert not group.calls and not group.waits
    assert "4 calls are no all-reduce" in "".join(group.doubts)


def test_a_missing_rank_may_be_the_latest(tmp_path: Path) -> None:
    ranks = steps_of(3, 5000, 200, ALL_REDUCE, devices=8)
    (group,) = job_of(ranks[:2], tmp_path).groups
    assert "of 3 ranks 2 are here: the latest may be another" in "".join(group.doubts)
    assert not group.slow and not group.fits


def test_of_a_job_with_missing_files_no_transfer_is_told(tmp_path: Path) -> None:
    """Files that do not say how large a group is: the job's size does."""
    ranks = steps_of(3, 5000, 200, {key: value for key, value in ALL_REDUCE.items() if key != "Group size"})
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole, part = job_of(ranks, tmp_path / "a"), job_of(ranks[:2], tmp_path / "b")
    assert "transfer" in whole.exposed and "transfer" not in part.exposed and "not all ranks' files" in part.exposed
    assert part.groups[0].partial and not whole.groups[0].partial


def test_files_of_other_times_are_of_other_runs() -> None:
    ranks = [RankSummary(source=str(at), rank=at, step_ns=1e6, communication_ns=1.0, span=(at * 10**11, at * 10**11))
             for at in range(2)]  # fmt: skip
    assert "some files end 100 s before others begin" in together(ranks).verdict
    assert together([replace(rank, span=(0, 10**12)) for rank in ranks]).bound != "unreliable"


def test_a_world_beyond_all_jobs_is_refused_without_counting_it() -> None:
    ranks = [RankSummary(source=str(at), rank=at, world_size=10**15, step_ns=1e6) for at in range(2)]
    assert together(ranks).bound == "unreliable" and "10000000000000" in together(ranks).verdict


def test_a_file_that_begins_a_step_later_is_matched_by_its_steps_numbers(tmp_path: Path) -> None:
    ranks = steps_of(3, 5000, 200, ALL_REDUCE, num=12, more=50)
    begin = ranks[1].steps[1][0]
    ranks[1].events = [event for event in ranks[1].events if event["ts"] >= begin]
    (group,) = job_of(ranks, tmp_path).groups
    assert group.sizes[0].transfer_ns == pytest.approx(US * (200 + 50 * 6))  # of steps 1 to 11, mean
    assert group.calls == 11 and "1 of 12 calls are not in every rank's file" in group.doubts
    assert {one.rank for one in group.waits if one.last} == {2}


def test_point_to_point_calls_of_some_ranks_do_not_shift_the_others(tmp_path: Path) -> None:
    """Rank 0 alone sends before each all-reduce, on the same group."""
    ranks = steps_of(3, 5000, 200, ALL_REDUCE, more=50, sends=True)
    (group,) = job_of(ranks, tmp_path).groups
    assert group.calls == 4 and group.sizes[0].transfer_ns == pytest.approx(US * 275)
    assert {one.rank for one in group.waits if one.last} == {2}


def collectives(rank: Grown) -> list[dict[str, Any]]:
    return [event for event in rank.events if event["name"].startswith("ncclDevKernel")]


def test_a_kernel_without_time_is_no_call(tmp_path: Path) -> None:
    ranks = steps_of(3, 5000, 200, ALL_REDUCE, more=50)
    ranks[0].events += [{**event, "ts": event["ts"] - 1, "dur": 0} for event in collectives(ranks[0])]
    (group,) = job_of(ranks, tmp_path).groups
    assert group.calls == 4 and not any("not in every" in doubt for doubt in group.doubts)
    assert group.sizes[0].transfer_ns == pytest.approx(US * 275)


def test_a_call_that_was_launched_before_the_file_began_is_of_no_step(tmp_path: Path) -> None:
    """Its kernel runs in a step of the file: were it the first one there, all calls of that step would be off by one.
    The file of another rank, which began earlier, does not have it in that step."""
    ranks = steps_of(3, 5000, 200, ALL_REDUCE, num=12, more=50)
    event = collectives(ranks[0])[1]
    args = event["args"] | {"correlation": 10**6, "External id": 10**6}
    ranks[0].events.append({**event, "ts": ranks[0].steps[1][0] + 1, "dur": 7, "args": args})
    (group,) = job_of(ranks, tmp_path).groups
    assert group.calls == 12 and group.sizes[0].transfer_ns == pytest.approx(US * 475)
    assert "1 of 13 calls are not in every rank's file" in group.doubts


def test_calls_are_numbered_as_they_were_launched() -> None:
    """On two streams the second may run first, and on one rank alone."""
    same = np.zeros(3, np.int64)
    assert np.argsort(numbers(same, same, same, np.array([30, 10, 20]))).tolist() == [1, 2, 0]


def kernels(start: Any, dur: Any) -> Kernels:
    rest = {each.name: np.zeros(len(start)) for each in dataclasses.fields(Kernels)}
    return Kernels(**rest | {"start": np.array(start), "dur": np.array(dur)})  # type: ignore[arg-type]


def test_the_curve_of_a_call_with_much_beside_it_is_close_near_its_end() -> None:
    """Where the transfer is: 200 kernels beside the waiting, few beside the last ms."""
    begins = np.concatenate((np.arange(0, 20_000_000, 100_000), [20_200_000, 20_700_000]))
    lengths = np.concatenate((np.full(200, 90_000), [100_000, 100_000]))
    span, beside = kernels([0], [21_000_000]), kernels(begins, lengths)
    table = np.zeros(1, ROW)
    table["ns"] = 21_000_000
    _bare(table, span, beside)
    works = np.zeros(21_000, bool)  # by us
    for begin, length in zip(begins // 1000, lengths // 1000, strict=True):
        works[begin : begin + length] = True
    for last in (100, 500, 1000):
        expected = 1000.0 * (~works[-last:]).sum()
        assert bare_in_the_last(table, np.array([1000.0 * last]))[0] == pytest.approx(expected, rel=0.15), last


def told(rank: int, numbers: list[int], ns: float, kind: int = 1, count: int = 0, size: float = 1e6) -> Told:
    """Calls of one group, all-reduces of one size that take as long as each other."""
    rows = np.zeros(len(numbers), ROW)
    rows["number"], rows["kind"], rows["size"], rows["ns"], rows["bare"] = numbers, kind, size, ns, ns
    rows["at"], rows["bare_at"] = ns, ns
    group = GroupCalls("0", "[0, 1]", 2, True, rows.tobytes())
    calls = Calls((group,), told=len(numbers), count=count or len(numbers))
    return Told(rank, f"{rank}.json", calls, device="NVIDIA A100-SXM4-80GB", within_a_host=True)


def both(one: Told, other: Told) -> Told:
    """The calls of both, in one group."""
    first, second = (told.calls.groups[0] for told in (one, other))
    return replace(one, calls=Calls((replace(first, rows=first.rows + second.rows),), told=1002, count=1002))


def test_calls_are_matched_by_number_and_the_others_told() -> None:
    (group,) = lateness([told(0, list(range(20)), 5e5), told(1, list(range(1, 21)), 2e5)])
    assert group.calls == 19 and group.doubts == ("1 of 20 calls are not in every rank's file",)
    assert (group.transfer_ns, group.waiting_ns) == (19 * 2e5, 19 * 3e5 / 2)


def test_waiting_is_of_a_plain_step_and_what_is_bare_of_a_step_of_its_own() -> None:
    """Recorded ns are not those of a plain step, and work beside them shrinks otherwise than they do."""
    scale = {"per_step": 2.0, "bare_per_step": 3.0}
    ranks = [replace(told(0, [0], 5e5), **scale), replace(told(1, [0], 2e5), **scale)]
    (group,) = lateness(ranks)
    late, early = group.waits
    assert (late.rank, late.last, late.late_ns, late.waiting_ns) == (1, 1, 2 * 3e5, 0)
    assert (early.waiting_ns, early.exposed_waiting_ns) == (2 * 3e5, 3 * 3e5)
    assert early.exposed_transfer_ns == late.exposed_transfer_ns == pytest.approx(3 * 2e5)
    assert group.transfer_ns == 2 * 2e5


def test_a_group_of_one_rank_waits_for_nobody() -> None:
    """Each rank may have one, all of one name."""
    ranks = [told(rank, [0, 1], 2e5) for rank in range(2)]
    alone = [
        replace(one, calls=Calls(tuple(replace(group, size=1) for group in one.calls.groups), told=2, count=2))
        for one in ranks
    ]
    assert len(lateness(ranks)) == 1 and lateness(alone) == ()


def test_in_an_all_to_all_each_rank_sends_what_it_has() -> None:
    kind = NAMES.index("all-to-all")
    (group,) = lateness([told(rank, list(range(20)), 2e5, kind=kind, size=1e6 * (rank + 1)) for rank in range(2)])
    assert group.calls == 20 and not group.doubts


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (told(1, list(range(10, 30)), 2e5), "10 of 20 calls are not in every"),
        (told(1, list(range(20)), 2e5, kind=2), "20 calls are not the same on all"),
    ],
)
def test_where_ranks_did_not_do_the_same_nothing_is_split(other: Told, why: str) -> None:
    (group,) = lateness([told(0, list(range(20)), 5e5), other])
    assert not group.calls and not group.waits and why in "".join(group.doubts) and "nothing is split" in group.doubts


def test_that_calls_were_cut_is_told() -> None:
    (group,) = lateness([told(0, list(range(20)), 5e5, count=90), told(1, list(range(40)), 2e5, count=90)])
    assert group.calls == 20 and group.doubts == ("of the first 20 of 90 calls of each rank",)
    assert not linked(group, []).slow


def test_what_all_ranks_hand_back_does_not_grow_with_their_number() -> None:
    assert [calls_each(n) for n in (2, 256, 1000, 10**7)] == [CALLS, CALLS, 131, 1]
    assert all(n * calls_each(n) <= OF_ALL for n in (2, 256, 257, 1000, 5000))


def test_the_first_calls_are_kept_and_the_rest_is_said_to_be_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gobrrr.ledger.job.calls.OF_ALL", 9)
    job = job_of(steps_of(3, 5000, 200, ALL_REDUCE | {"Seq": 5}, num=6), tmp_path)
    (group,) = job.groups
    assert group.calls == 3 and "of the first 3 of 6 calls of each rank" in group.doubts
    assert group.transfer_ns == pytest.approx(200 * US, rel=0.01)  # per step, as if all had been like these
    assert all(rank.calls is None for rank in job.ranks)
