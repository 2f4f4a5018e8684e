"""Which settings of a loader are tried and which one is kept: against a search of all of them by the loader model."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import product

import pytest

from gobrrr.ledger.loading import loader_model
from gobrrr.ledger.loading.loader_model import ALIKE, HANDOVER_NS, Pipeline
from gobrrr.trial.race.loader_settings import MOST_TRIALS, LoaderSearch, Setting, Tried

MS, GB = 1e6, 1e9
NONE, FREE = Setting(0), 1e12


def searched(search: LoaderSearch, step: Callable[[Setting], float], held: Callable[[Setting], float] = lambda s: 0.0):
    """Runs it on a machine that times exactly: settings in the order in which they were tried."""
    tried = []
    while (setting := search.next()) is not None:
        mean = math.log(step(search.now) / step(setting))
        search.feed(setting, Tried(mean, mean - 0.01, held(setting)))
        tried.append(setting)
    return tried


def of_the_model(pipeline: Pipeline, cores: float, off: float = 1.0) -> Callable[[Setting], float]:
    """Its step, of which loading is `off` times as long with each doubling of the workers: the advice is wrong then."""

    def step(setting: Setting) -> float:
        said = loader_model.step(pipeline, setting.workers, cores)
        crowd = off ** math.log2(max(1, setting.workers))
        return max(said * crowd, pipeline.compute_ns + HANDOVER_NS) if setting.workers else said

    return step


@pytest.mark.parametrize("now", [0, 1, 4])
@pytest.mark.parametrize("off", [1.0, 0.9, 1.1])
def test_it_ends_at_the_best_of_all_within_eight_trials(now: int, off: float) -> None:
    """486 loops of made stage times, on two and on four cores, also where the model is off by a tenth per doubling."""
    for compute, blocked, cpu, cores in product((4, 10, 40), (1, 8, 64), (0, 6, 32), (1.8, 3.9)):
        pipeline = Pipeline(compute * MS, blocked * MS, cpu * MS, busy=0.9)
        step, most = of_the_model(pipeline, cores, off), loader_model.enough(cores, now)
        first = loader_model.best(pipeline, cores, most)
        search = LoaderSearch(Setting(first), Setting(now), most, FREE)
        tried = searched(search, step)
        least = min(step(Setting(workers)) for workers in range(most + 1))
        kept = search.best() or search.now
        assert len(tried) == len(set(tried)) <= MOST_TRIALS and search.now not in tried
        assert step(kept) <= step(search.now), "never slower than what the user set"
        assert least / step(kept) > 0.95, (pipeline, cores, tried)


def test_of_two_that_are_alike_the_one_with_fewer_workers_is_kept() -> None:
    search = LoaderSearch(Setting(3), NONE, 8, FREE)
    searched(search, lambda s: {0: 100, 1: 60, 2: 40.3, 3: 40, 4: 39.9}.get(s.workers, 39.8))
    assert search.best() == Setting(2)
    search = LoaderSearch(Setting(3), NONE, 8, FREE)
    searched(search, lambda s: {0: 100, 1: 60, 2: 44, 3: 40, 4: 39.9}.get(s.workers, 39.8))
    assert search.best() == Setting(3)


def test_what_the_user_set_stays_where_nothing_is_shown_to_be_faster() -> None:
    search = LoaderSearch(Setting(2), Setting(4), 8, FREE)
    searched(search, lambda s: 40 if s.workers >= 4 else 50)
    assert search.best() is None
    search = LoaderSearch(Setting(2), NONE, 4, FREE)
    search.feed(Setting(2), Tried(0.3, -0.1))
    assert search.best() is None, "a mean without an interval above nothing"
    search = LoaderSearch(Setting(2), NONE, 4, FREE)
    search.feed(Setting(2), Tried(ALIKE, 0.001))
    assert search.best() is None, "one figure"


def test_what_is_shown_is_kept_and_not_what_only_seems_to_be_faster_still() -> None:
    """As of Lightning's pictures on a noisy machine, where the fused optimizer was confirmed instead."""
    search = LoaderSearch(Setting(1), NONE, 4, FREE)
    seen = ((Setting(1), 0.13, -0.17), (Setting(2), 0.58, 0.05), (Setting(4), 0.58, -0.44), (Setting(3), 0.63, -0.18))
    for setting, mean, low in seen:
        search.feed(setting, Tried(mean, low))
    assert search.best() == search.likely() == Setting(2)
    search.feed(Setting(3, prefetch=4), Tried(0.8, 0.3))
    assert search.best() == Setting(3, prefetch=4), "of what is shown the best"
    search = LoaderSearch(Setting(2), NONE, 4, FREE)
    search.feed(Setting(1), Tried(0.015, 0.002))
    search.feed(Setting(2), Tried(0.5, -0.05))
    assert search.likely() == Setting(2), "what is as good as nothing hides none that leans far"
    search.feed(Setting(1), Tried(0.1, 0.05))
    assert search.likely() == Setting(2) and search.best() is None, "nor what is shown to be a fifth of it"


def test_one_worker_that_is_worse_than_none_hides_no_two_that_are_better() -> None:
    """Two are the model's neighbour, though not that of the program as it is."""
    search = LoaderSearch(Setting(1), NONE, 4, FREE)
    searched(search, lambda s: {0: 60, 1: 62, 2: 30}.get(s.workers, 35))
    assert search.best() == Setting(2)


def test_more_workers_than_a_few_are_reached_in_wide_steps() -> None:
    search = LoaderSearch(Setting(8), NONE, 64, FREE)
    tried = searched(search, lambda s: 1000 / min(24, max(1, s.workers)))
    assert search.best() == Setting(24) and [s.workers for s in tried[:3]] == [8, 16, 32]


@pytest.mark.parametrize(("room", "kept"), [(0.9, None), (1.1, 1), (2.2, 2), (4.4, 4), (100, 8)])
def test_workers_have_room_for_their_batches(room: float, kept: int | None) -> None:
    """Two batches of 500 MB each: what has no room is not even tried."""
    search = LoaderSearch(Setting(8), NONE, 8, room * GB, batch_bytes=GB / 2)
    tried = searched(search, lambda s: 100 / (1 + s.workers), lambda s: s.workers * GB)
    assert all(s.workers * GB <= room * GB for s in tried)
    assert search.best() == (None if kept is None else Setting(kept))
    assert bool(search.too_large) == (room < 8)


def test_what_workers_hold_themselves_is_learnt_from_the_first_one() -> None:
    """Their batches are nothing, each worker's copy of the data is a gigabyte."""
    search = LoaderSearch(Setting(2), NONE, 64, 5 * GB)
    tried = searched(search, lambda s: 100 / (1 + s.workers), lambda s: s.workers * GB)
    assert max(s.workers for s in tried) == 4 and search.best() == Setting(4)
    assert search.needs(Setting(4)) == pytest.approx(4 * GB)
    search = LoaderSearch(Setting(4), NONE, 64, 3 * GB)
    tried = searched(search, lambda s: 100 / (1 + s.workers), lambda s: s.workers * GB)
    assert tried[0] == Setting(4) and search.best() == Setting(3), "the first was too large, and is not kept"


def test_rows_at_once_beat_any_number_of_workers() -> None:
    """A TensorDataset: workers are the mistake."""

    def step(setting: Setting) -> float:
        loading = 2.0 if setting.batched else 20.0
        return 5 + (loading if not setting.workers else max(2.0, loading / setting.workers))

    search = LoaderSearch(Setting(2), Setting(4), 8, FREE, can_batch=True)
    searched(search, step)
    assert search.best() == Setting(0, batched=True)
    without = LoaderSearch(Setting(2), Setting(4), 8, FREE)
    assert not any(setting.batched for setting in searched(without, step))


def test_more_batches_ahead_are_tried_once_the_workers_are_known() -> None:
    """Late ones are hidden by as many as are ready; where all come in time two are enough."""

    def step(setting: Setting) -> float:
        return 40 + max(0.0, 20 - 3 * setting.workers * setting.prefetch) if setting.workers else 80.0

    uneven, steady = (LoaderSearch(Setting(1), NONE, most, FREE) for most in (1, 4))
    assert [setting.prefetch for setting in searched(uneven, step)] == [2, 4, 8]
    assert uneven.best() == Setting(1, prefetch=8)
    searched(steady, lambda setting: 40.0 if setting.workers else 80.0)
    assert steady.best() == Setting(1) and Setting(1, 4) in steady.tried and Setting(1, 8) not in steady.tried


def test_pinned_memory_is_tried_on_a_device_alone() -> None:
    plain, device = (LoaderSearch(Setting(2), NONE, 4, FREE, can_pin=pin) for pin in (False, True))

    def step(setting: Setting) -> float:
        return (50 if setting.workers >= 2 else 90) - 5 * setting.pinned

    assert not any(setting.pinned for setting in searched(plain, step))
    searched(device, step)
    assert device.best() == Setting(2, pinned=True)


def test_fewer_workers_are_tried_where_the_first_ones_fail() -> None:
    search = LoaderSearch(Setting(6), NONE, 8, FREE)
    while (setting := search.next()) is not None and setting.workers > 3:
        search.fail(setting)
    assert setting == Setting(3)
    search.feed(setting, Tried(0.5, 0.4))
    assert search.best() == Setting(3) and search.next() not in search.failed


def test_noise_never_makes_it_ask_twice_or_for_more_than_eight() -> None:
    for seed in range(50):
        stream = random.Random(seed)
        search = LoaderSearch(Setting(stream.randrange(9)), Setting(stream.randrange(5)), stream.choice((4, 64)), FREE,
                              can_batch=True, can_pin=True)  # fmt: skip
        seen: list[Setting] = []
        while (setting := search.next()) is not None:
            seen.append(setting)
            search.feed(setting, Tried(stream.gauss(0, 0.5), stream.gauss(0, 0.5)))
        assert len(seen) == len(set(seen)) <= MOST_TRIALS and search.now not in seen


def test_the_safety_class_of_a_setting() -> None:
    """Draws inside of samples come from the streams of as many workers; what is only fetched otherwise is the same."""
    now = Setting(2)
    assert Setting(2, prefetch=8, batched=True, pinned=True).safety(now) == "exact"
    assert Setting(1).safety(now) == Setting(0).safety(now) == "order"
    assert str(Setting(1, 8, batched=True)) == "1 worker, 8 batches ahead, rows taken at once"
    assert Setting(2, prefetch=8).with_workers(0) == NONE, "without workers none are ahead"


def test_what_is_kept_is_tried_first_and_by_itself() -> None:
    """No setting is both: workers would each keep their own."""
    search = LoaderSearch(Setting(2), NONE, 4, FREE, can_batch=True, can_pin=True, keepers=("one", "other"))
    tried = searched(search, lambda s: 10 if s.kept == "other" else 20 if s.kept else {0: 40, 1: 30}.get(s.workers, 24))
    assert tried[:2] == [Setting(0, kept="one"), Setting(0, kept="other")]
    assert len(tried) > 3 and not any(each.kept for each in tried[2:])
    assert search.best() == Setting(0, kept="other") and str(tried[0]) == "one"
    assert tried[0].safety(NONE) == "exact"


def test_what_keeps_enough_ends_the_search() -> None:
    search = LoaderSearch(Setting(2), NONE, 4, FREE, keepers=("one",))
    search.enough = math.log(2)
    assert searched(search, lambda s: 10 if s.kept else 40) == [Setting(0, kept="one")]


def test_workers_are_searched_for_where_nothing_can_be_kept_after_all() -> None:
    search = LoaderSearch(Setting(2), NONE, 4, FREE, keepers=("one",))
    search.fail(Setting(0, kept="one"))
    searched(search, lambda s: {0: 40, 1: 30}.get(s.workers, 24))
    assert search.best() == Setting(2)
