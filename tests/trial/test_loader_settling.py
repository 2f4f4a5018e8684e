"""The search for a loader's settings in a whole tuning, on a fake clock: what race, receipt and recipe get."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from gobrrr.pipeline.tuning import Wishes, loader_family, recipe_of
from gobrrr.report.html.tuning_page import is_told
from gobrrr.report.text.tuning_progress import outcome
from gobrrr.report.told import tuning as shown
from gobrrr.rules.model.finding import Finding, Quantity, Saving
from gobrrr.rules.verdict.report import Account, Report, Step, Verdict
from gobrrr.trial.arm.arm import Arm
from gobrrr.trial.race.candidates import Candidate
from gobrrr.trial.race.loader_search import Family
from gobrrr.trial.race.loader_settings import LoaderSearch, Setting
from gobrrr.trial.race.race_round import Stack
from gobrrr.trial.race.tuning import Journal, Tuning
from gobrrr.trial.statistics.objective import MEMORY
from tests.support.race_clock import MS, FakeReferee

MANY, ONE = "loader_workers", "one_worker"
GB = 1e9
KEEPER = "computed_once"
CLASH = {MANY: frozenset({ONE}), ONE: frozenset({MANY}), KEEPER: frozenset({MANY})}


class Loaders(FakeReferee):
    """Its step is that of the setting that its arms were given; `held`: bytes of each worker."""

    def __init__(self, of: Callable[[int, int], float], held: float = 0.0, start: int = 0, **fields) -> None:
        super().__init__({}, **fields)
        self._of, self._worker, self._start = of, held, start
        self.options: Mapping[str, Mapping[str, int]] = {MANY: {"workers": 2}}
        self.made: dict[Stack, tuple[int, int]] = {}

    def give(self, options: Mapping[str, Mapping[str, int]]) -> None:
        self.options = options

    def start(self, stacks, seconds):
        self.made.update({stack: self._setting(stack) for stack in stacks})
        return super().start(stacks, seconds)

    def _setting(self, stack: Stack) -> tuple[int, int]:
        base = next((name for name in stack if name in (MANY, ONE)), "")
        given = self.options.get(base, {})
        return (given.get("workers", 1) if base else self._start), given.get("prefetch", 2)

    def step(self, stack: Stack) -> float:
        found = self._of(*self.made.get(stack, self._setting(stack)))
        return found * MS / (1.25 if "other" in stack else 1.0)

    def held(self, stack: Stack) -> int:
        assert stack in self.alive, "what has ended holds nothing"
        return int(1e9 + self.made[stack][0] * self._worker)


def tuned(referee: Loaders, folder: Path, *names: str, seconds: float = 600, **fields) -> Tuning:
    search = LoaderSearch(Setting(2), Setting(referee._start), 8, fields.pop("room", 1e12), **fields)
    guests = tuple(name for name in (MANY, ONE) if name not in names)
    candidates = [Candidate(name, Saving(0.0, 9 * MS, 15 * MS), CLASH.get(name, frozenset()))
                  for name in (*names, *guests)]  # fmt: skip
    tuning = Tuning(candidates, referee.step(()), referee, Journal(folder / "journal.jsonl"), seconds=seconds,
                    clock=referee.clock, family=Family(search, guests=guests))  # fmt: skip
    tuning.run()
    return tuning


def test_the_best_setting_is_what_is_guarded_confirmed_and_written(tmp_path: Path) -> None:
    referee = Loaders(lambda workers, prefetch: {0: 40, 1: 30, 2: 24, 3: 20, 4: 16}.get(workers, 16.1))
    receipt = tuned(referee, tmp_path, MANY, "other").receipt()
    assert set(receipt.kept) == {MANY, "other"} and referee.options == {MANY: {"workers": 4, "prefetch": 2}}
    assert receipt.speedup is not None and receipt.speedup.median == pytest.approx(1.25 * 40 / 16, rel=0.05)
    searched = [trial for trial in receipt.trials if trial.options]
    assert 3 <= len(searched) <= 8 and searched[0].options == {MANY: {"workers": 2, "prefetch": 2}}
    assert searched[0].reason == "2 workers (order)" and searched[0].predicted is None
    assert (
        "4 workers as good as any (order" in receipt.notes[0]
        and "settings of its loaders were tried" in receipt.notes[0]
    )


def test_figures_of_other_settings_are_not_those_of_what_was_kept(tmp_path: Path) -> None:
    """No speed-up beside the guard of another setting."""
    import msgspec

    referee = Loaders(lambda workers, prefetch: {0: 40, 1: 30, 2: 24, 3: 20, 4: 16}.get(workers, 16.1))
    receipt = tuned(referee, tmp_path, MANY).receipt()
    receipt = msgspec.structs.replace(receipt, options={MANY: {"workers": 4, "prefetch": 2}})
    by = {trial.options[MANY]["workers"]: trial for trial in receipt.trials
          if trial.options.get(MANY, {}).get("prefetch") == 2}  # fmt: skip
    assert is_told(by[4], receipt) and not is_told(by[2], receipt)
    assert by[2] in shown.raced(receipt, kept=False) and by[4] in shown.raced(receipt, kept=True)
    assert by[2].name == "loader_workers (workers=2, prefetch=2)" and by[2].name in outcome(by[2])
    (ingredient,) = recipe_of(receipt).remedies
    assert ingredient.speedup is not None and ingredient.speedup[0] == pytest.approx(40 / 16, rel=0.1)
    assert ingredient.options == {"workers": 4, "prefetch": 2}


def test_one_worker_has_its_core_where_it_is_the_best(tmp_path: Path) -> None:
    referee = Loaders(lambda workers, prefetch: {0: 40, 1: 20, 2: 23}.get(workers, 30))
    receipt = tuned(referee, tmp_path, ONE).receipt()
    assert receipt.kept == (ONE,) and referee.options[ONE] == {"prefetch": 2}
    assert not any(trial.remedies == (MANY,) and not trial.options for trial in receipt.trials)


def test_what_only_leans_is_left_to_the_race_as_such(tmp_path: Path) -> None:
    """Nothing is shown on a machine that others hold; the setting that seems best is what is confirmed, or not."""
    machine = {"noise": 0.25, "burst": 0.0}
    referee = Loaders(
        lambda workers, prefetch: {0: 40, 1: 39, 2: 30}.get(workers, 34) + 5 * (prefetch - 2), machine=machine
    )
    found = tuned(referee, tmp_path, MANY)
    assert all(trial.verdict == "inconclusive" for trial in found.results if trial.options)
    assert "2 workers may be faster (order)" in found.receipt().notes[0]
    assert referee.options[MANY] == {"workers": 2, "prefetch": 2} and referee.measured == [(MANY,)]


@pytest.mark.parametrize(("two_ms", "leans", "raced"), [(30, "2 workers", MANY), (37, "1 worker", ONE)])
def test_the_race_looks_longer_at_what_leans_and_at_no_worse_setting_of_the_same(
    two_ms: float, leans: str, raced: str, tmp_path: Path
) -> None:
    """Of short looks at Lightning's pictures on a crowded machine 2 workers had 1.65 (0.86 to 3.16), and one, which the
    race then looked at a dozen times, 1.11: that was kept."""
    referee = Loaders(
        lambda workers, prefetch: {0: 40, 1: 39, 2: two_ms}.get(workers, 4 + two_ms) + 5 * (prefetch - 2),
        machine={"noise": 0.25, "burst": 0.0},
    )
    found = tuned(referee, tmp_path, MANY, ONE)
    assert f"{leans} may be faster (order)" in found.receipt().notes[0]
    looked = [trial for trial in found.results if trial.purpose == "add" and not trial.options]
    assert {trial.remedies for trial in looked} == {(raced,)}
    if raced == MANY:
        assert found.receipt().kept == (MANY,) and referee.options[MANY] == {"workers": 2, "prefetch": 2}


def test_what_leans_is_looked_at_before_what_a_finding_promises(tmp_path: Path) -> None:
    """A remedy that is a candidate for the search's sake alone promises nothing; what was seen of it does."""
    machine = {"noise": 0.35, "burst": 0.0}
    of = {0: 40, 1: 39, 2: 30}
    referee = Loaders(lambda workers, prefetch: of.get(workers, 33) + 5 * (prefetch - 2), machine=machine, room=1)
    search = LoaderSearch(Setting(2), Setting(0), 2, 1e12)
    others = [Candidate(name, Saving(0.0, 5 * MS, 15 * MS), cause="BRR1") for name in ("other", "another")]
    guests = [Candidate(MANY), Candidate(ONE)]
    tuning = Tuning([*others, *guests], referee.step(()), referee, Journal(tmp_path / "journal.jsonl"), seconds=600,
                    clock=referee.clock, family=Family(search, guests=(MANY, ONE)))  # fmt: skip
    tuning.run()
    assert all(trial.verdict == "inconclusive" for trial in tuning.results if trial.options)
    looked = next(trial for trial in tuning.results if not trial.options)
    assert looked.remedies == (MANY,) and looked.predicted == Saving(0.0, 0.0, 0.0), "nobody predicted it"
    assert not any(note.startswith(f"{MANY} was not tried") for note in tuning.receipt().notes)


def test_what_the_search_tried_is_not_told_as_not_tried(tmp_path: Path) -> None:
    """MONAI's volumes: computed_once failed in the search, and "was not tried: it conflicts with loader_workers"."""
    referee = Loaders(lambda workers, prefetch: {0: 40, 1: 30}.get(workers, 20), broken=(KEEPER,))
    receipt = tuned(referee, tmp_path, MANY, KEEPER, keepers=(KEEPER,)).receipt()
    assert receipt.kept == (MANY,) and receipt.trials[0].remedies == (KEEPER,) and receipt.trials[0].verdict == "failed"
    assert not any(note.startswith(f"{KEEPER} was not tried") for note in receipt.notes)


def test_the_users_setting_stays_where_none_is_faster(tmp_path: Path) -> None:
    """And the race looks at the remedies as without a search, at those that are there for it no more."""
    referee = Loaders(lambda workers, prefetch: 20 + workers)
    receipt = tuned(referee, tmp_path, MANY, "other").receipt()
    assert receipt.kept == ("other",) and referee.options == {MANY: {"workers": 2}}
    assert not any(trial.remedies == (ONE,) and not trial.options for trial in receipt.trials)
    assert not any("was not tried" in note for note in receipt.notes), "all were, with some setting"
    assert "none is shown to be faster than what is set" in receipt.notes[0]


def test_what_holds_more_memory_than_there_is_room_for_is_not_kept(tmp_path: Path) -> None:
    referee = Loaders(lambda workers, prefetch: 40 / (1 + workers), held=GB)
    receipt = tuned(referee, tmp_path, MANY, room=2.5 * GB).receipt()
    assert referee.options == {MANY: {"workers": 2, "prefetch": 2}} and receipt.kept == (MANY,)
    assert "2 left out that need more than 2.33 GiB of memory" in receipt.notes[0] and "1.86 GiB" in receipt.notes[0]


def test_fewer_workers_than_the_user_set(tmp_path: Path) -> None:
    referee = Loaders(lambda workers, prefetch: {0: 30, 1: 26, 2: 20, 3: 20, 4: 22, 6: 25}.get(workers, 30), start=8)
    tuned(referee, tmp_path, MANY)
    assert referee.options == {MANY: {"workers": 2, "prefetch": 2}}


def test_the_search_leaves_guard_and_confirmation_their_time(tmp_path: Path) -> None:
    referee = Loaders(lambda workers, prefetch: 40 / (1 + workers), start_s=20, guard_s=20)
    found = tuned(referee, tmp_path, MANY, seconds=300)
    assert found.receipt().kept == (MANY,) and referee.clock() < 330
    assert len([trial for trial in found.results if trial.options]) == 3, "each takes 28 s, of 90"


def test_what_a_search_measured_settles_nothing_for_another_tuning(tmp_path: Path) -> None:
    referee = Loaders(lambda workers, prefetch: {0: 40, 1: 30, 2: 24, 3: 20, 4: 16}.get(workers, 16.1))
    tuned(referee, tmp_path, MANY)
    again = Tuning([Candidate(MANY)], referee.step(()), referee, Journal(tmp_path / "journal.jsonl"), seconds=60)
    again.take_over()
    assert not again.race.shown


def report(code: str = "BRR405", ceiling: float = 60.0, **figures: float) -> Report:
    evidence = {name: Quantity(value) for name, value in figures.items()}
    found = Finding(code, "name", "data", "warning", Saving(0, 5, ceiling), "message", evidence=evidence)
    accounts = (Account("data_wait", 60, 0.6),)
    return Report(verdict=Verdict("data", ""), step=Step(10, 100, 100), findings=(found,), ledger=accounts)


def family(found: Report, wishes: Wishes, *names: str) -> Family | None:
    return loader_family(found, [Candidate(name) for name in names], wishes)


def test_it_begins_where_the_model_says_and_only_where_a_finding_does() -> None:
    said = report(workers=3, num_workers=1, batches_ahead=4)
    found = family(said, Wishes(), MANY, "batched_fetch")
    assert found is not None and found.search.next() == Setting(3, prefetch=4) and found.guests == (ONE,)
    assert found.search.now == Setting(1, prefetch=4)
    assert found.stack(Setting(1, 4, batched=True)) == ("batched_fetch",), "the workers are the user's own"
    assert found.stack(Setting(3, 4)) == (MANY,) and found.stack(Setting(1, 8)) == (ONE,)
    assert found.options(Setting(1, 8)) == {ONE: {"prefetch": 8}}
    assert found.options(Setting(0)) == {MANY: {"workers": 0, "prefetch": 2}}
    assert family(report("BRR201", workers=3), Wishes()) is None
    crowd = family(report("BRR406", workers=2, num_workers=12), Wishes(), ONE)
    assert crowd is not None and crowd.search.next() == Setting(2) and crowd.guests == (MANY,)
    unadvised = family(report(workers=0), Wishes(), MANY)
    assert unadvised is not None and not unadvised.advised and unadvised.search.next() == Setting(1)
    assert found.advised and family(report(), Wishes(), MANY) is None, "nobody was asked"
    assert family(report(ceiling=9.0, workers=3), Wishes(), MANY) is None, "of a hundred, which other remedies may need"
    assert family(said, Wishes(objective=MEMORY), MANY) is None, "workers only cost memory"


def test_what_is_kept_is_a_setting_of_loaders_without_workers() -> None:
    found = family(report(workers=2), Wishes(), MANY, "computed_once", "decoded_once")
    assert found is not None and found.search.next() == Setting(0, kept="computed_once")
    assert found.stack(Setting(0, kept="decoded_once")) == ("decoded_once",)
    assert found.options(Setting(0, kept="decoded_once")) == {}
    theirs = family(report(workers=3, num_workers=1), Wishes(), MANY, "computed_once")
    assert theirs is not None and not theirs.search.next().kept, "each worker would keep its own"


def test_what_the_user_leaves_out_is_no_part_of_it() -> None:
    said = report(workers=1)
    assert family(said, Wishes(without=(MANY,)), ONE) is None and family(said, Wishes(only=(ONE,)), ONE) is None
    found = family(said, Wishes(without=(ONE,)))
    assert found is not None and found.stack(Setting(1)) == (MANY,) and found.guests == (MANY,)
    only = family(said, Wishes(only=(MANY,)), MANY)
    assert only is not None and only.guests == () and only.options(Setting(1))[MANY]["workers"] == 1


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the kernel does not tell what is shared")
def test_what_forked_workers_share_is_counted_once() -> None:
    """64 MiB that two processes hold in common are no 128."""
    ballast = bytearray(os.urandom(1 << 20) * 64)
    context = multiprocessing.get_context("fork")
    over = context.Event()
    child = context.Process(target=over.wait, args=(60,))
    child.start()
    try:
        family = [psutil.Process(), psutil.Process(child.pid)]
        arm = cast("Arm", SimpleNamespace(_members=lambda: family, _total=lambda of: Arm._total(arm, of)))
        found = Arm.held(arm)
        each = [process.memory_info().rss for process in family]
        assert len(ballast) < found < sum(each) - len(ballast) // 2
    finally:
        over.set()
        child.join()
