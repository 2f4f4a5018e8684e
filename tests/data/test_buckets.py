"""Bucketing: every index once per epoch, resumed where it stood, ranks apart and alike."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.data import BucketBatchSampler, DistributedBucketBatchSampler, order_distance
from gobrrr.data.packing.buckets import padded_efficiency
from gobrrr.errors import GobrrrError

LENGTHS = np.clip(np.random.RandomState(0).lognormal(4.0, 0.9, 100_000), 1, 512).astype(np.int64)
lengths = st.lists(st.integers(0, 50), min_size=1, max_size=120)
sizes = st.one_of(
    st.fixed_dictionaries({"batch_size": st.integers(1, 9)}),
    st.fixed_dictionaries({"max_tokens": st.integers(50, 200)}),
    st.fixed_dictionaries({"batch_size": st.integers(1, 9), "max_tokens": st.integers(50, 200)}),
)


def flat(batches: Any) -> list[int]:
    return sorted(index for batch in batches for index in batch)


@settings(max_examples=150, deadline=None)
@given(lengths, sizes, st.integers(1, 5), st.integers(0, 3))
def test_every_index_once_per_epoch_and_no_batch_too_large(
    given_: list[int], size: dict[str, int], mega: int, seed: int
) -> None:
    sampler = BucketBatchSampler(given_, **size, mega_batch=mega, seed=seed)
    for _ in range(2):
        batches = list(sampler)
        assert flat(batches) == list(range(len(given_))) and len(batches) == len(sampler)
        for batch in batches:
            assert 1 <= len(batch) <= size.get("batch_size", len(given_))
            assert len(batch) * max(given_[index] for index in batch) <= size.get("max_tokens", 10**9)


@settings(max_examples=150, deadline=None)
@given(lengths, sizes, st.integers(1, 4), st.booleans())
def test_ranks_are_disjoint_and_have_equally_many_batches(
    given_: list[int], size: dict[str, int], ranks: int, drop: bool
) -> None:
    samplers = [
        DistributedBucketBatchSampler(given_, **size, num_replicas=ranks, rank=rank, mega_batch=2, drop_last=drop)
        for rank in range(ranks)
    ]
    try:
        drawn = [list(sampler) for sampler in samplers]
    except GobrrrError as error:
        assert "no equal number of batches" in str(error) and not drop
        assert len(given_) < ranks or len(given_) % ranks
        return
    assert len({len(batches) for batches in drawn}) == 1
    seen = [index for batches in drawn for index in flat(batches)]
    assert len(set(seen)) == len(seen) and (drop or len(seen) == len(given_))


def test_ranks_have_batches_of_like_length_in_every_step() -> None:
    drawn = [list(DistributedBucketBatchSampler(LENGTHS, 32, num_replicas=4, rank=rank)) for rank in range(4)]
    longest = np.array([[LENGTHS[batch].max() for batch in batches] for batches in drawn])
    assert (longest.max(0) / longest.mean(0)).mean() < 1.1
    assert longest.sum(1).max() / longest.sum(1).mean() < 1.05


@pytest.mark.parametrize("size", [{"batch_size": 32}, {"max_tokens": 4096}])
def test_at_least_92_percent_of_what_is_computed_are_tokens(size: dict[str, int]) -> None:
    """By hand, apart from the sampler's own figure: rows times the longest."""
    computed = sum(len(batch) * LENGTHS[batch].max() for batch in BucketBatchSampler(LENGTHS, **size))
    assert LENGTHS.sum() / computed >= 0.92
    sampler = BucketBatchSampler(LENGTHS, **size)
    assert padded_efficiency(LENGTHS, sampler.batches(0)) == pytest.approx(LENGTHS.sum() / computed)


def test_the_order_is_another_each_epoch_and_the_same_for_the_same_seed() -> None:
    one, same, other = (BucketBatchSampler(LENGTHS[:999], 7, seed=seed) for seed in (5, 5, 6))
    first, second = list(one), list(one)
    assert first != second and first == list(same) and first != list(other)
    same.set_epoch(1)
    assert list(same) == second
    same.set_epoch(0)
    assert list(same) == first


def test_batches_of_a_seed_stay_those_of_other_versions() -> None:
    """A state that was saved is resumed by another NumPy: the stream is a frozen one."""
    assert list(BucketBatchSampler([5, 1, 4, 2, 3, 9], 2, seed=1, mega_batch=2)) == [[0, 4], [3, 1], [5, 2]]


@settings(max_examples=100, deadline=None)
@given(lengths, sizes, st.data())
def test_a_resumed_epoch_gives_the_batches_that_were_left(
    given_: list[int], size: dict[str, int], data: st.DataObject
) -> None:
    whole = BucketBatchSampler(given_, **size)
    epochs = [list(whole), list(whole), list(whole)]
    done = data.draw(st.integers(0, len(epochs[1])))
    left = BucketBatchSampler(given_, **size)
    list(left)
    assert list(islice(iter(left), done)) == epochs[1][:done]
    state = json.loads(json.dumps(left.state_dict()))
    resumed = BucketBatchSampler(given_, **size)
    resumed.load_state_dict(state)
    if done == len(epochs[1]):
        assert list(resumed) == epochs[2]
    else:
        resumed.set_epoch(1)  # as loops over epochs do
        assert list(resumed) == epochs[1][done:] and list(resumed) == epochs[2]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_batches_that_workers_drew_ahead_are_not_lost() -> None:
    from torch.utils.data import DataLoader

    whole = list(BucketBatchSampler(LENGTHS[:320], 8))
    sampler = BucketBatchSampler(LENGTHS[:320], 8)
    loader = DataLoader(list(range(320)), batch_sampler=sampler, num_workers=2, collate_fn=list)  # type: ignore[arg-type]
    drawn = iter(loader)
    assert [next(drawn) for _ in range(5)] == whole[:5]
    assert sampler.state_dict()["batches_done"] > 5
    resumed = BucketBatchSampler(LENGTHS[:320], 8)
    resumed.load_state_dict(sampler.state_dict(batches_done=5))
    assert list(resumed) == whole[5:]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_follow_each_other_through_a_loader(num_workers: int, persistent: bool) -> None:
    """Loaders with workers make the iterator anew and again before they draw."""
    from torch.utils.data import DataLoader

    alone, beneath = (BucketBatchSampler(LENGTHS[:64], 8) for _ in range(2))
    loader = DataLoader(
        list(range(64)),  # type: ignore[arg-type]
        batch_sampler=beneath,
        num_workers=num_workers,
        persistent_workers=persistent and num_workers > 0,
        collate_fn=list,
    )
    assert [list(loader) for _ in range(3)] == [list(alone) for _ in range(3)]


def test_a_state_of_another_sampler_is_refused() -> None:
    state = BucketBatchSampler(LENGTHS[:100], 8).state_dict()
    for other in (BucketBatchSampler(LENGTHS[1:101], 8), BucketBatchSampler(LENGTHS[:100], 9)):
        with pytest.raises(GobrrrError, match="the state is of a sampler with"):
            other.load_state_dict(state)


def test_the_distance_from_a_uniform_order() -> None:
    """0 for a random order, 1 for a sorted one; sorted within mega-batches is alike within batches, without drift."""
    order = np.random.RandomState(0).permutation(len(LENGTHS))
    random = order_distance(LENGTHS, [part.tolist() for part in np.array_split(order, 3125)])
    by_length = order_distance(LENGTHS, [part.tolist() for part in np.array_split(np.argsort(LENGTHS), 3125)])
    bucketed = order_distance(LENGTHS, BucketBatchSampler(LENGTHS, 32).batches(0))
    assert abs(random.batches) < 0.01 and abs(random.drift) < 0.01
    assert by_length.batches > 0.99 and by_length.drift > 0.99
    assert bucketed.batches > 0.9 and bucketed.drift < 0.05
    less = order_distance(LENGTHS, BucketBatchSampler(LENGTHS, 32, mega_batch=2).batches(0))
    assert less.batches < bucketed.batches


def test_the_distance_by_hand() -> None:
    """Ranks 1, 2 | 3, 4: total 5 over 3, within 1 over 2: 1 - 0.5 / (5 / 3) = 0.7."""
    assert order_distance([10, 20, 30, 40], [[0, 1], [2, 3]]).batches == pytest.approx(0.7)
    assert order_distance([7, 7, 7], [[0, 1], [2]]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"lengths": [1]}, "neither batch_size nor max_tokens"),
        ({"lengths": [1], "batch_size": 0}, "batch_size=0"),
        ({"lengths": [], "batch_size": 1}, "one integer per sequence"),
        ({"lengths": [1.5], "batch_size": 1}, "one integer per sequence"),
        ({"lengths": [1, -1], "batch_size": 1}, "sequence 1 has a negative length"),
        ({"lengths": [1, 9], "max_tokens": 8}, "sequence 1 has 9 tokens, a batch 8"),
    ],
)
def test_what_makes_no_batches_is_said(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(GobrrrError, match=says):
        BucketBatchSampler(**arguments)


def test_a_rank_has_to_be_known() -> None:
    with pytest.raises(GobrrrError, match="pass num_replicas and rank"):
        DistributedBucketBatchSampler([1, 2], 1)
    with pytest.raises(GobrrrError, match="no rank 2 with num_replicas=2"):
        DistributedBucketBatchSampler([1, 2], 1, num_replicas=2, rank=2)
