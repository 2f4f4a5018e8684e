"""Advice: figures known for a law, exact ones by counting, the answer that packing brings nothing."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from gobrrr.data import BucketBatchSampler, pack, simulate
from gobrrr.errors import GobrrrError


def test_the_known_figures_of_a_log_normal_law() -> None:
    """100,000 lengths of mean 4.0 and deviation 0.9 (of their logarithm) cut to 512, batches of 32."""
    drawn = np.clip(np.random.RandomState(0).lognormal(4.0, 0.9, 100_000), 1, 512).astype(int)
    found = simulate(Counter(drawn.tolist()), batch_size=32, capacity=512)
    assert found.pad_to_cap == pytest.approx(0.156, abs=0.002)
    assert found.pad_in_collate == pytest.approx(0.229, abs=0.003)
    assert found.bucketing == pytest.approx(0.94, abs=0.005)
    assert found.packing == pytest.approx(0.9998, abs=0.0002)
    assert found.packing <= found.packing_bound <= 1 and not found.nothing_to_gain
    assert found.num_bins == len(pack(drawn, 512))


def test_padding_is_exact() -> None:
    """All batches of 3 out of 6, counted one by one."""
    lengths = [1, 2, 2, 5, 7, 7]
    longest = np.mean([max(batch) for batch in combinations(lengths, 3)])
    found = simulate(Counter(lengths), batch_size=3)
    assert found.pad_in_collate == pytest.approx(np.mean(lengths) / longest)
    assert found.pad_to_cap == pytest.approx(24 / 42)


def test_bucketing_is_what_the_sampler_reaches() -> None:
    lengths = np.random.RandomState(1).gamma(3, 30, 5000).astype(int) + 1
    batches = BucketBatchSampler(lengths, 16, seed=9)
    reached = lengths.sum() / sum(len(batch) * lengths[batch].max() for batch in batches)
    assert simulate(Counter(lengths.tolist()), batch_size=16).bucketing == pytest.approx(reached, abs=0.01)


def test_a_hundred_times_as_many_sequences_have_the_same_figures() -> None:
    lengths = Counter((np.random.RandomState(2).gamma(3, 30, 5000).astype(int) + 1).tolist())
    few = simulate(lengths, batch_size=16)
    many = simulate({length: 100 * number for length, number in lengths.items()}, batch_size=16)
    assert (many.pad_to_cap, many.pad_in_collate) == pytest.approx((few.pad_to_cap, few.pad_in_collate), abs=0.01)
    assert many.bucketing == pytest.approx(few.bucketing, abs=0.02)


def test_nothing_to_gain_where_no_two_share_a_row() -> None:
    found = simulate({52: 1000}, batch_size=32, capacity=100)
    assert found.nothing_to_gain and found.lower_bound == found.num_bins == 1000
    assert found.packing == found.packing_bound == pytest.approx(0.52) and found.pad_in_collate == found.bucketing == 1
    assert "Nothing to gain by packing: 100.0 % of the sequences exceed half of 100 tokens" in str(found)
    assert not simulate({50: 1000}, batch_size=32, capacity=100).nothing_to_gain


def test_longer_ones_count_as_cut() -> None:
    assert simulate({8: 3, 20: 1}, batch_size=2, capacity=10) == simulate({8: 3, 10: 1}, batch_size=2, capacity=10)


@pytest.mark.parametrize("histogram", [{}, {0: 3}, {3: -1}, {5: 0}])
def test_no_histogram_is_said(histogram: dict[int, int]) -> None:
    with pytest.raises(GobrrrError, match="no histogram of lengths"):
        simulate(histogram, batch_size=2)
