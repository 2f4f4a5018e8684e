"""What any loader fix could give, in a whole tuning on a fake clock: who measures it, and what comes of it."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gobrrr.cli.verbs.tune import exit_code
from gobrrr.ledger.model.ledger import Roofline
from gobrrr.pipeline.tuning import Wishes, candidates, recipe_of, waits_for_loaders
from gobrrr.report.forms import formats
from gobrrr.report.text import tuning_progress
from gobrrr.report.told import tuning as shown
from gobrrr.rules.model.finding import Finding, Quantity, Rehearsed, Saving
from gobrrr.rules.verdict.report import Account, Device, Report, Span, Step, Verdict
from gobrrr.trial.race import headroom, loader_search
from gobrrr.trial.race.candidates import Candidate
from gobrrr.trial.race.headroom import REPLAYED, Glimpse
from gobrrr.trial.race.loader_search import Family
from gobrrr.trial.race.loader_settings import LoaderSearch, Setting, Tried
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Stack
from gobrrr.trial.race.tuning import Journal, Tuning
from gobrrr.trial.receipt import receipt
from gobrrr.trial.receipt.receipt import Figure, Headspace, Receipt, Samples, Speedup
from gobrrr.trial.statistics.objective import MEMORY
from tests.support.race_clock import MS
from tests.support.shown import as_text
from tests.trial.test_loader_settling import MANY, ONE, Loaders

BY_WORKERS = {0: 40, 1: 30, 2: 21, 3: 20.5, 4: 20}


class Waits(Loaders):
    """A program whose step with its batches ready is `ready` ms."""

    def __init__(self, of: Callable[[int, int], float], ready: float, **fields) -> None:
        super().__init__(of, **fields)
        self.ready, self.blocks = ready, 0

    def step(self, stack: Stack) -> float:
        return self.ready * MS if stack == REPLAYED else super().step(stack)

    def start(self, stacks, seconds):
        assert REPLAYED not in self.alive, "it takes nobody's memory any more"
        return super().start(stacks, seconds)

    def block(self, stack: Stack, steps: int):
        self.blocks += stack == REPLAYED
        return super().block(stack, steps)


def tuned(referee: Waits, folder: Path, *names: str, seconds: float = 600, waits: bool = True, **fields) -> Tuning:
    folder.mkdir(exist_ok=True)
    search = LoaderSearch(Setting(2), Setting(0), 8, 1e12)
    guests = tuple(name for name in (MANY, ONE) if name not in names)
    candidates = [Candidate(name, Saving(0.0, 9 * MS, 15 * MS)) for name in (*names, *guests)]
    tuning = Tuning(candidates, referee.step(()), referee, Journal(folder / "journal.jsonl"), seconds=seconds,
                    clock=referee.clock, family=Family(search, guests=guests), waits=waits, **fields)  # fmt: skip
    tuning.run()
    return tuning


def by_workers(workers: int, prefetch: int) -> float:
    return BY_WORKERS.get(workers, 20)


def test_a_program_whose_compute_is_known_is_told_so(tmp_path: Path) -> None:
    """20 of 40 ms are computed."""
    referee = Waits(by_workers, ready=20)
    found = tuned(referee, tmp_path, MANY).receipt().headspace
    assert found is not None and found.compute_ns is not None and found.saved_ns is not None
    assert found.step_ns == pytest.approx(40 * MS, rel=0.03)
    for figure, wanted in ((found.compute_ns, 20 * MS), (found.saved_ns, 20 * MS)):
        assert figure.low < wanted < figure.high and figure.low < figure.value < figure.high
    assert set(found.samples.arm) == {0, 1} and len(found.samples.arm) / 4 <= 24


def test_what_works_on_the_step_is_bounded_by_the_step_with_its_batches_ready(tmp_path: Path, monkeypatch) -> None:
    """Less is there than compile was thought to bring; where that is not worth a look it is an answer."""
    referee = Waits(by_workers, ready=8)
    step = Candidate("compile", Saving(0.0, 20 * MS, 40 * MS), in_step=True)
    tuning = Tuning([step], referee.step(()), referee, Journal(tmp_path / "journal.jsonl"), seconds=600,
                    clock=referee.clock, waits=True)  # fmt: skip
    tuning.run()
    found = tuning.receipt()
    (tried,) = found.trials
    assert found.headspace is not None and found.headspace.compute_ns is not None and tried.predicted is not None
    most = found.headspace.compute_ns.high / found.headspace.step_ns * 40 * MS
    assert tried.predicted.ceiling_ns == tried.predicted.expected_ns == pytest.approx(most) and most < 12 * MS
    monkeypatch.setattr("gobrrr.trial.race.candidates.POLICY", replace(POLICY, worth=0.5))
    again = Tuning([step], referee.step(()), referee, Journal(tmp_path / "again.jsonl"), seconds=600,
                   clock=referee.clock, waits=True)  # fmt: skip
    again.run()
    found = again.receipt()
    assert found.measured and not found.trials and not found.left and exit_code(found) == 0
    assert any("compile was not tried: at most" in note for note in found.notes)
    assert not any("would do" in note for note in found.notes)


def test_what_was_seen_of_the_wait_bounds_it_where_nothing_is_replayed() -> None:
    waits = Finding(
        "BRR401", "name", "data", "critical", Saving(0.0, 50.0, 90.0), "message",
        evidence={"headspace_low": Quantity(90.0, "ns")},
    )  # fmt: skip
    report = Report(verdict=Verdict("data", "x"), step=Step(10, 100, 100), findings=(waits,),
                    ledger=(Account("data_wait", 85.0, 0.85),))  # fmt: skip
    found = {each.name: each for each in candidates(report, Wishes())}
    assert found["compile"].in_step and found["compile"].predicted == Saving(0.0, 1.5, 15.0), "the median's wait"
    assert not found["malloc_thresholds"].in_step
    free = msgspec.structs.replace(report, findings=())
    assert {each.name: each for each in candidates(free, Wishes())}["compile"].predicted.ceiling_ns == 100.0


@pytest.mark.parametrize(("dtype", "raced"), [("fp32", True), ("bf16", False), ("fp16", False)])
def test_what_computes_in_half_precision_already_is_not_lowered(dtype: str, raced: bool) -> None:
    """Lightning's bf16-mixed: one of two places of a race went to it."""
    report = Report(verdict=Verdict("compute", "x"), step=Step(10, 100, 100), roofline=Roofline(dtype=dtype))
    assert ("bf16_autocast" in {each.name for each in candidates(report, Wishes())}) == raced
    assert "bf16_autocast" in {each.name for each in candidates(report, Wishes(named=("bf16_autocast",)))}


def test_what_no_finding_of_its_kind_offers_is_no_candidate() -> None:
    """Of two that a code is named by one is offered: TF32 is allowed already. What was rehearsed speaks for itself."""
    told = Saving(5.0, 50.0, 90.0)
    found = Finding("BRR110", "name", "compute", "critical", told, "message", remedies=("bf16_autocast",))
    report = Report(verdict=Verdict("compute", "x"), step=Step(10, 100, 100), findings=(found,))
    names = {each.name: each.predicted for each in candidates(report, Wishes())}
    assert names["bf16_autocast"] == told and "matmul_precision" not in names
    assert "matmul_precision" in {each.name for each in candidates(report, Wishes(named=("matmul_precision",)))}
    played = msgspec.structs.replace(report, rehearsed=(Rehearsed("matmul_precision", told, -50.0, 60.0),))
    assert {each.name: each.predicted for each in candidates(played, Wishes())}["matmul_precision"] == told
    offered = msgspec.structs.replace(found, remedies=("bf16_autocast", "matmul_precision"))
    again = msgspec.structs.replace(report, findings=(found, offered))
    assert "matmul_precision" in {each.name for each in candidates(again, Wishes())}


def test_where_the_loader_holds_the_step_its_search_has_more_of_the_time(tmp_path: Path) -> None:
    """38 of 40 ms wait: two looks of 30 s fit into 60 % of two minutes, one into 30 %."""
    told = [Waits(by_workers, ready=ready, start_s=20) for ready in (2, 35)]
    looks = [len([trial for trial in tuned(each, tmp_path / str(n), MANY, seconds=150).results if trial.options])
             for n, each in enumerate(told)]  # fmt: skip
    assert looks[0] > looks[1]
    assert loader_search.share(None) == loader_search.share(Headspace()) == POLICY.loader


def test_it_is_no_candidate_and_stands_nowhere_as_one(tmp_path: Path) -> None:
    """Twice as fast as anything, and neither raced nor guarded, kept, confirmed or written."""
    referee = Waits(by_workers, ready=2)
    tuning = tuned(referee, tmp_path, MANY, "other")
    told = tuning.receipt()
    assert set(told.kept) == {MANY, "other"}
    for stack in (*referee.guarded, *referee.measured, told.kept, told.likely, *(t.remedies for t in told.trials)):
        assert REPLAYED[0] not in stack
    assert referee.starts.count(REPLAYED) == 1 and REPLAYED not in referee.alive
    assert REPLAYED[0] not in (tmp_path / "journal.jsonl").read_text()
    told = msgspec.structs.replace(told, options={MANY: {"workers": 4, "prefetch": 2}})
    assert REPLAYED[0] not in str(recipe_of(told))


def test_the_search_ends_where_nine_tenths_of_it_are_reached(tmp_path: Path) -> None:
    """19 of 20 ms with the first setting; three to four more would be looked at for the last one."""
    ended = tuned(Waits(by_workers, ready=20), tmp_path / "a", MANY).receipt()
    tried = [trial for trial in ended.trials if trial.options]
    assert len(tried) == 1 and ended.options == {} and ended.kept == (MANY,)
    assert "2 workers with at least 90% of what any loader fix could bring: no other was tried" in ended.notes[0]
    assert ended.headspace is not None and ended.headspace.reached is not None
    assert ended.headspace.reached.low < 0.95 <= ended.headspace.reached.high
    more = tuned(Waits(by_workers, ready=15), tmp_path / "b", MANY).receipt()
    assert len([trial for trial in more.trials if trial.options]) > 1, "19 of 25 ms are not enough"
    unknown = tuned(Waits(by_workers, ready=20), tmp_path / "c", MANY, waits=False).receipt()
    assert len([trial for trial in unknown.trials if trial.options]) > 1 and unknown.headspace is None


def test_where_the_model_advises_no_workers_the_headspace_decides(tmp_path: Path) -> None:
    """It is off by so much that workers would never be tried: what was measured says that half of the step is there."""
    for ready, waits, searched in ((20, True, True), (37, True, False), (20, False, False)):
        referee = Waits(by_workers, ready=ready)
        family = Family(LoaderSearch(Setting(1), Setting(0), 8, 1e12), guests=(ONE, MANY), advised=False)
        candidates = [Candidate(name, Saving(0.0, 9 * MS, 15 * MS)) for name in ("other", ONE, MANY)]
        tuning = Tuning(candidates, referee.step(()), referee, Journal(tmp_path / f"{ready}{waits}"), seconds=600,
                        clock=referee.clock, family=family, waits=waits)  # fmt: skip
        tuning.run()
        assert any(trial.options for trial in tuning.results) == searched
        assert any({ONE, MANY} & set(stack) for stack in referee.starts) == searched, "guests of the search alone"


def test_what_others_bring_is_no_part_of_it(tmp_path: Path) -> None:
    """Loaders bring 19 of 20 ms, and another remedy 1.25 times."""
    told = tuned(Waits(by_workers, ready=20), tmp_path, MANY, "other").receipt()
    assert set(told.kept) == {MANY, "other"} and told.headspace is not None and told.headspace.reached is not None
    assert told.headspace.reached.value == pytest.approx(0.95, abs=0.04)


def test_what_the_search_has_settled_nobody_of_its_family_tries_again(tmp_path: Path) -> None:
    referee = Waits(by_workers, ready=20)
    tuned(referee, tmp_path, MANY, "batched_fetch", "persistent_workers", "other")
    raced = {name for stack in referee.starts for name in stack}
    assert raced == {MANY, "other", *REPLAYED}


def test_where_there_is_next_to_nothing_to_gain_no_setting_is_searched_for(tmp_path: Path) -> None:
    found = tuned(Waits(by_workers, ready=39.5), tmp_path, MANY).receipt()
    assert not any(trial.options for trial in found.trials)
    assert "no setting of its loaders was searched for" in found.notes[0]
    assert found.headspace is not None and found.headspace.reached is None


@pytest.mark.parametrize(("fault", "reason"), [("broken", "never took hold"), ("mortal", "it was killed")])
def test_what_cannot_be_replayed_is_said_and_the_search_goes_on(tmp_path: Path, fault: str, reason: str) -> None:
    found = tuned(Waits(by_workers, ready=20, **{fault: REPLAYED}), tmp_path, MANY).receipt()
    assert found.headspace is not None and reason in found.headspace.reason and found.headspace.saved_ns is None
    assert len([trial for trial in found.trials if trial.options]) > 1 and found.kept == (MANY,)
    (line,) = shown.headspace(found.headspace)
    assert line == f"what a loader fix can save was not measured: {found.headspace.reason}"


def test_blocks_take_a_tenth_of_the_time_and_too_few_of_them_say_nothing(tmp_path: Path) -> None:
    """Steps of 4 s: sweeps of 12 s, of which one begins in a tenth of 100 s and five in one of 600."""
    few = Waits(lambda *_: 4000, ready=2000)
    found = tuned(few, tmp_path / "a", MANY, seconds=100).receipt().headspace
    assert found is not None and "of 3 sweeps fitted into a tenth of the time" in found.reason
    assert few.blocks == 2 and found.saved_ns is None
    found = tuned(Waits(lambda *_: 4000, ready=2000), tmp_path / "b", MANY, seconds=600).receipt().headspace
    assert found is not None and found.saved_ns is not None
    assert sum(found.samples.ns) <= 1.3 * POLICY.headroom * 600e9


def test_a_glimpse_ends_where_it_knows_enough() -> None:
    heat = Glimpse(1e9, lambda: 0.0)
    for _ in range(3):
        assert heat.order()
        heat.feed({(): [40.0, 40.0], REPLAYED: [20.0, 20.0]})
    assert not heat.order(), "three sweeps without noise"


def test_of_a_headspace_that_may_be_none_no_share_is_told() -> None:
    rows = Samples(arm=(0, 1, 1, 0), steps=(1,) * 4, ns=(40, 39, 39, 40))
    unsure = headroom.of(rows, Speedup(1.02, 0.98, 1.06))
    assert unsure.saved_ns is not None and unsure.saved_ns.low == 0 and headroom.enough(unsure) == math.inf
    assert headroom.reached(unsure, Speedup(2.0, 1.9, 2.1)) == unsure
    sure = headroom.of(rows, Speedup(2.0, 1.9, 2.1))
    assert headroom.enough(sure) == pytest.approx(-math.log(1 - 0.9 * 0.5))
    whole = headroom.reached(sure, Speedup(4.0, 3.9, 4.1))
    assert whole is not None and whole.reached == Figure(1.0, 1.0, 1.0), "no share is above one"


def test_a_setting_that_only_leans_is_not_enough() -> None:
    search = LoaderSearch(Setting(2), Setting(0), 8, 1e12)
    search.enough = 0.5
    search.feed(Setting(2), Tried(0.6, -0.1))
    assert search.next() is not None
    search.feed(Setting(3), Tried(0.7, 0.6))
    assert search.next() is None


def report(*codes: str) -> Report:
    found = tuple(Finding(code, "name", "data", "warning", Saving(0, 5, 60), "said", evidence={"a": Quantity(1)})
                  for code in codes)  # fmt: skip
    return Report(verdict=Verdict("data", ""), step=Step(10, 100, 100), findings=found)


@pytest.mark.parametrize(
    ("codes", "names", "wanted"),
    [(("BRR401",), (), True), (("BRR407",), (), True), (("BRR410",), (), True),
     (("BRR409",), ("trim_padding",), False), ((), (MANY,), True), (("BRR201",), ("compile",), False)],
)  # fmt: skip
def test_who_waits_for_a_loader_is_asked(codes: tuple[str, ...], names: tuple[str, ...], wanted: bool) -> None:
    chosen = [Candidate(name, named=True) for name in names]
    assert waits_for_loaders(report(*codes), chosen, Wishes()) == wanted
    assert not waits_for_loaders(report(*codes), chosen, Wishes(objective=MEMORY)), "workers only cost memory"
    assert not waits_for_loaders(report(*codes), chosen, Wishes(only=("compile",))), "nobody would gain by it"
    assert waits_for_loaders(report(*codes), chosen, Wishes(only=("compile", MANY))) == wanted


def test_a_note_is_not_worth_an_arm_of_replayed_batches() -> None:
    """Workers that start in every epoch were 5 % of a GPT's step: 54 s of four minutes went on what they could give."""
    given = report("BRR404")
    small = tuple(msgspec.structs.replace(each, severity="note") for each in given.findings)
    assert waits_for_loaders(given, [Candidate("persistent_workers")], Wishes())
    assert not waits_for_loaders(
        msgspec.structs.replace(given, findings=small), [Candidate("persistent_workers")], Wishes()
    )


KNOWN = Headspace(
    step_ns=40 * MS, compute_ns=Figure(16 * MS, 15 * MS, 17 * MS), saved_ns=Figure(24 * MS, 23 * MS, 25 * MS),
    reached=Figure(0.95, 0.9, 1.0),
)  # fmt: skip
SAID = (
    "with data ready the step takes 16.0 ms (15.0 ms to 17.0 ms): a loader fix can save at most 24.0 ms (23.0 ms to "
    "25.0 ms) of 40.0 ms",
    "what was kept saves 95.0 % (90.0 % to 100.0 %) of that",
)


def test_receipt_text_page_and_comment_tell_it(tmp_path: Path) -> None:
    kept = Receipt(headspace=KNOWN)
    receipt.write(kept, tmp_path / "receipt.json")
    assert receipt.read(tmp_path / "receipt.json").headspace == KNOWN
    text = " ".join(as_text(kept).split())
    page, comment = (formats.render(kept, form, formats.View()).decode() for form in ("html", "markdown"))
    for line in SAID:
        assert line in text and line in page and line in comment.replace("\\", "")
    assert "headroom" not in as_text(Receipt()), "of a receipt from before"


def test_it_is_told_while_the_tuning_runs(tmp_path: Path) -> None:
    stream = io.StringIO()
    tuning_progress.listener(stream, 100).headspace(KNOWN)
    assert [line.strip() for line in stream.getvalue().splitlines()] == [*SAID]
    stream = io.StringIO()
    tuned(Waits(by_workers, ready=20), tmp_path, MANY, listener=tuning_progress.listener(stream, 600))
    lines = stream.getvalue().splitlines()
    (at,) = [number for number, line in enumerate(lines) if "with data ready" in line]
    assert f"racing {REPLAYED[0]} against" in lines[at - 1] and f"racing {MANY}" in lines[at + 1]


def test_pages_of_the_host_are_no_remedy_where_a_device_computes() -> None:
    report = Report(verdict=Verdict("compute", "x"), step=Step(10, 100, 100))
    assert "malloc_thresholds" in {each.name for each in candidates(report, Wishes())}
    there = msgspec.structs.replace(report, device=Device("gpu", 0.9, Span(0.9)))
    assert "malloc_thresholds" not in {each.name for each in candidates(there, Wishes())}
    assert "malloc_thresholds" in {each.name for each in candidates(there, Wishes(named=("malloc_thresholds",)))}
    pages = Finding(
        "BRR202", "pages", "bandwidth", "warning", Saving(1.0, 5.0, 9.0), "m", remedies=("malloc_thresholds",)
    )
    asked = msgspec.structs.replace(there, findings=(pages,))
    assert "malloc_thresholds" in {each.name for each in candidates(asked, Wishes())}
