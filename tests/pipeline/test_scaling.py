"""Recorded ranks: told from the folders of several machines as from one, and forecast on more ranks."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import gobrrr
from gobrrr.cli.main import main
from gobrrr.errors import GobrrrError
from gobrrr.ledger.job.culprits import Shared
from gobrrr.ledger.job.forecast import Network
from gobrrr.ledger.job.lateness import Group, SizedTransfer
from gobrrr.ledger.job.ranks import Job, RankSummary
from gobrrr.pipeline import runs
from gobrrr.recording.model.facts import Facts, OptimizerFacts
from gobrrr.recording.run_folder.run import load_run
from gobrrr.report.told.job import told

pytest.importorskip("torch")
NETWORK = Network(1e9, 1e4)


@pytest.fixture
def machines(tmp_path: Path, shelf: Path) -> list[Path]:
    """The folder of a run of two ranks, as two machines would have left it."""
    found = []
    for rank in (0, 1):
        folder = tmp_path / f"machine{rank}"
        shutil.copytree(shelf / "ranks", folder, ignore=shutil.ignore_patterns(f"rank{1 - rank}*"))
        found.append(folder)
    return found


def test_folders_of_machines_make_the_job_of_one_folder(machines: list[Path]) -> None:
    twice = gobrrr.diagnose([str(machines[0])] * 2)
    assert isinstance(twice, Job) and twice.bound == "unreliable" and twice.doubled
    with ThreadPoolExecutor(2) as pool:
        by_pool = gobrrr.diagnose(list(map(str, machines)), executor=pool)
    here = gobrrr.diagnose(list(map(str, machines)))
    assert isinstance(here, Job) and here == by_pool
    assert here.live and [rank.rank for rank in here.ranks] == [0, 1] and not here.missing
    assert {rank.source.split("/")[0] for rank in here.ranks} == {"machine0", "machine1"}


def test_scale_tells_what_was_seen_and_more_ranks(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = runs.scale([shelf / "ranks"], [2, 8], NETWORK).seen
    assert seen.ranks == 2 and 0 < seen.own_ns <= seen.step_ns and seen.plan and seen.spread
    assert main(["scale", str(shelf / "ranks"), "--ranks", "2,8", "--link", "10Gb/s,20us"]) == 0
    told = capsys.readouterr().err
    assert "8 ranks would do the work of" in told and "1.25 GB/s and 20.0 us" in told


def test_one_rank_needs_a_network(shelf: Path) -> None:
    with pytest.raises(GobrrrError, match="one rank tells nothing"):
        runs.scale([shelf / "starved"], [4])
    (point,) = runs.scale([shelf / "starved"], [1], NETWORK).points
    assert point.transfer_ns == 0 and point.speedup == pytest.approx(1.0)


def test_one_rank_is_planned_as_ddp_or_as_fsdp2(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring without latency sends 2 (n - 1) / n of the bytes in an all-reduce, half of it in each other collective."""
    trained = Facts(optimizers=(OptimizerFacts(id=1, buckets=(1 << 20, 3 << 20), micro_steps=2.0),))
    monkeypatch.setattr("gobrrr.ledger.job.seen.facts_of", lambda *_: trained)
    by = {plan: runs.scale([shelf / "starved"], [8], Network(1e9, 0.0), plan) for plan in ("ddp", "fsdp2")}
    assert {one.kind for one in by["ddp"].seen.plan} == {"all-reduce"}
    assert {one.kind for one in by["fsdp2"].seen.plan} == {"all-gather", "reduce-scatter"}
    assert by["ddp"].points[0].transfer_ns == pytest.approx(2 * 7 / 8 * 2 * (4 << 20))
    assert by["fsdp2"].points[0].transfer_ns == pytest.approx(3 * 7 / 8 * 2 * (4 << 20))


def test_what_holds_another_rank_alone_is_in_the_programs_report(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 is starved: all ranks wait for its loader, so that rank 0's report names it."""
    first, (starved,) = load_run(shelf / "ranks")[0], load_run(shelf / "starved")
    start = msgspec.structs.replace(starved.start, rank=1, world_size=2)
    monkeypatch.setattr("gobrrr.recording.run_folder.run.load_run", lambda _: [first, replace(starved, start=start)])
    both = runs.report_of(shelf / "ranks", [], 0, rehearsal=False)
    of_other = [finding.code for finding in both.findings if finding.message.startswith("on rank 1: ")]
    assert "BRR401" in of_other and not any(code.startswith(("BRR7", "BRR9")) for code in of_other)


@pytest.mark.parametrize(
    "words",
    [
        ["--ranks", "0"],
        ["--ranks", "x"],
        ["--link", "5us"],
        ["--link", "10Gb/s"],
        ["--link", f"{10**400}Gb/s,5us"],
        ["--link", f"1Gb/s,{10**400}s"],
    ],
)
def test_what_cannot_be_read_is_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "ranks", *words]) == 2
    assert "gobrrr: error:" in capsys.readouterr().err


def test_a_rank_whose_others_are_missing_is_no_job_of_one(machines: list[Path]) -> None:
    with pytest.raises(GobrrrError, match="1 of 2 ranks are there"):
        runs.scale(machines[:1], [4], NETWORK)
    assert runs.scale(machines, [4], NETWORK).seen.ranks == 2


def test_a_file_that_is_no_job_is_told(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("[]")
    with pytest.raises(GobrrrError, match="no report of a job"):
        runs.scale([tmp_path / "job.json"], [4], NETWORK)


@pytest.mark.parametrize("number", [1e-300, 0.0, 1e300])
def test_a_job_of_impossible_collectives_is_told(number: float, tmp_path: Path) -> None:
    sizes = (SizedTransfer(kind="all-reduce", size=10**6, calls=9, transfer_ns=number),)
    group = Group(group="g", size=2, calls=9, transfer_ns=1e6, sizes=sizes)
    rank = RankSummary(source="a", step_ns=1e7, exposed_communication_ns=1e6, num_steps=9)
    (tmp_path / "job.json").write_bytes(msgspec.json.encode(Job(ranks=(rank, rank), groups=(group,))))
    try:
        points = runs.scale([tmp_path / "job.json"], [2, 8], NETWORK).points
        assert all(0 < point.low_ns <= point.step_ns <= point.high_ns < 1e15 for point in points)
    except GobrrrError as error:
        assert "no run has made" in error.message


def test_a_job_says_whether_its_work_was_measured_or_modelled() -> None:
    shared = Shared(steps=9, step_ns=40e6, own_ns=30e6, imbalance_ns=0.0, phases=((30e6,), (30e6,)))
    said = {fact.label: fact.lines for fact in told(Job(shared=shared, ranks=(RankSummary(source="a"),) * 2))}
    assert "2 ranks do the work of 1.5 that wait for nobody (modelled)" in str(said["speed-up"])
    job = Job(shared=shared, ranks=(RankSummary(source="a"),) * 2, alone_ns=20e6)
    said = {fact.label: fact.lines for fact in told(job)}
    assert "work of 1.0 (measured: one by itself takes 20.0 ms a step)" in str(said["speed-up"])
