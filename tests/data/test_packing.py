"""Packing: every index once, no bin too full, what a search item by item finds, near what any packing needs."""

from __future__ import annotations

import argparse
import bisect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.data import Bins, efficiency, lower_bound, pack
from gobrrr.errors import GobrrrError

cases = st.integers(1, 60).flatmap(
    lambda capacity: st.tuples(st.lists(st.integers(1, capacity), max_size=80), st.just(capacity))
)


def item_by_item(lengths: list[int], capacity: int) -> list[int]:
    """Best-fit decreasing as the textbook has it; how full each bin is."""
    filled: list[int] = []
    for length in sorted(lengths, reverse=True):
        fits = [(capacity - full, at) for at, full in enumerate(filled) if full + length <= capacity]
        if fits:
            filled[min(fits)[1]] += length
        else:
            filled.append(length)
    return sorted(filled)


def fewest(lengths: list[int], capacity: int) -> int:
    """Bins of the best packing, by trying all."""

    def search(rest: tuple[int, ...], spaces: tuple[int, ...], best: int) -> int:
        if len(spaces) >= best or not rest:
            return min(best, len(spaces))
        for at, space in enumerate(spaces):
            if space >= rest[0] and space not in spaces[:at]:
                best = search(rest[1:], (*spaces[:at], space - rest[0], *spaces[at + 1 :]), best)
        return search(rest[1:], (*spaces, capacity - rest[0]), best)

    return search(tuple(sorted(lengths, reverse=True)), (), len(lengths))


@settings(max_examples=200, deadline=None)
@given(cases)
def test_every_index_once_and_as_full_as_item_by_item(case: tuple[list[int], int]) -> None:
    lengths, capacity = case
    bins = pack(lengths, capacity)
    assert sorted(index for one in bins for index in one) == list(range(len(lengths)))
    assert sorted(sum(lengths[index] for index in one) for one in bins) == item_by_item(lengths, capacity)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 20), max_size=8))
def test_the_bound_is_never_above_the_best_packing(lengths: list[int]) -> None:
    assert -(-sum(lengths) // 20) <= lower_bound(lengths, 20) <= fewest(lengths, 20)


def test_the_bound_knows_that_long_sequences_share_no_bin() -> None:
    assert lower_bound([51] * 10, 100) == 10
    assert lower_bound([60, 60, 60, 40, 40], 100) == 3
    assert lower_bound([60, 60, 60, 41, 41], 100) == 4  # 41 fits beside no 60


def paragraphs() -> list[int]:
    """A real law: words of the paragraphs of the standard library's sources, cut to 256."""
    sources = sorted(Path(argparse.__file__).parent.glob("*.py"))
    texts = "\n\n".join(path.read_text(errors="replace") for path in sources).split("\n\n")
    return [min(256, len(text.split())) for text in texts if text.strip()]


def drawn(law: str) -> tuple[np.ndarray, int]:
    """100,000 lengths: 55 % of the rows' tokens would be padding in the tamest of them, 87 % in the widest."""
    draw = np.random.RandomState(0)
    lengths, capacity = {
        "instructions": (draw.lognormal(5.2, 0.95, 100_000), 2048),
        "tweets": (draw.lognormal(4.0, 0.9, 100_000), 512),
        "sentences": (draw.gamma(4, 3.2, 100_000) + 3, 128),
        "uniform": (draw.randint(1, 2049, 100_000), 2048),
    }[law]
    return np.clip(lengths, 1, capacity).astype(np.int64), capacity


@pytest.mark.parametrize("law", ["instructions", "tweets", "sentences", "uniform", "paragraphs"])
def test_at_least_995_per_mille_full_and_within_5_of_the_bound(law: str) -> None:
    lengths, capacity = (np.array(paragraphs()), 256) if law == "paragraphs" else drawn(law)
    bins = pack(lengths, capacity)
    assert (efficiency(lengths, bins, capacity) or 0) >= 0.995
    assert len(bins) <= 1.005 * lower_bound(lengths, capacity)


def test_the_search_costs_by_lengths_and_not_by_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.data.packing import pack as packing

    lengths, capacity = drawn("instructions")
    asked = 0

    def counted(*given: object) -> int:
        nonlocal asked
        asked += 1
        return bisect.bisect_left(*given)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(packing, "bisect_left", counted)
    packing.plan(np.bincount(lengths), capacity)
    few, asked = asked, 0
    packing.plan(100 * np.bincount(lengths), capacity)
    assert asked <= 2 * few < 100 * capacity


def test_lengths_beyond_16_bits_are_sorted_too() -> None:
    lengths = np.random.RandomState(0).randint(1, 1 << 20, 3000)
    bins = pack(lengths, 1 << 20)
    assert sorted(np.concatenate([bins.indices])) == list(range(3000))
    assert sorted(bins.sums(lengths).tolist()) == item_by_item(lengths.tolist(), 1 << 20)


def test_a_hand_made_case() -> None:
    assert sorted(map(sorted, pack([7, 5, 3, 3, 2], 10))) == [[0, 2], [1, 3, 4]]
    assert pack([], 10) == [] and efficiency([], pack([], 10), 10) is None


@pytest.mark.parametrize(
    ("lengths", "capacity", "says"),
    [
        ([3, 11, 12], 10, r"sequence 1 \(and 1 more\) has 11 tokens, a bin 10 \(truncate them"),
        ([3, 0], 10, "sequence 1 has length 0"),
        ([3, -2], 10, "sequence 1 has length -2"),
        ([1.5], 10, "shape \\(1,\\) and type float64"),
        ([[1, 2]], 10, "one integer per sequence"),
        ([[1, 2], [3]], 10, "ragged"),
        (["a"], 10, "one integer per sequence"),
        ([1], 0, "capacity=0"),
    ],
)
def test_what_cannot_be_packed_is_said(lengths: list[int], capacity: int, says: str) -> None:
    with pytest.raises(GobrrrError, match=says):
        pack(lengths, capacity)


def test_what_is_too_long_can_be_left_out() -> None:
    assert sorted(index for one in pack([3, 11, 4, 12], 10, too_long="drop") for index in one) == [0, 2]
    with pytest.raises(GobrrrError, match="'error' or 'drop'"):
        pack([1], 10, too_long="cut")  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(cases, st.integers(1, 7))
def test_ranks_get_equally_many_bins_and_every_index_once(case: tuple[list[int], int], ranks: int) -> None:
    lengths, capacity = case
    parts = pack(lengths, capacity).split(lengths, ranks)
    assert len(parts) == ranks and len({len(part) for part in parts}) == 1
    assert sorted(index for part in parts for one in part for index in one) == list(range(len(lengths)))


@pytest.mark.parametrize("law", ["instructions", "uniform"])
def test_ranks_have_the_same_work_in_every_step(law: str) -> None:
    lengths, capacity = drawn(law)
    parts = pack(lengths, capacity).split(lengths, 8)
    for cost in (lengths, lengths**2):
        steps = np.array([part.sums(cost) for part in parts])
        assert (steps.max(0) / steps.mean(0)).mean() < 1.01  # unsorted: 1.35 for squares of instructions
        assert steps.sum(1).max() / steps.sum(1).mean() < 1.01


def test_ranks_have_the_same_work_where_rows_are_not_equally_full() -> None:
    """By squares alone the largest of a step had 7 % more tokens than its mean."""
    lengths = np.random.RandomState(0).randint(300, 900, 400)
    parts = pack(lengths, 1000).split(lengths, 8)
    tokens, squares = (np.array([part.sums(cost) for part in parts]) for cost in (lengths, lengths**2))
    assert (tokens.max(0) / tokens.mean(0)).mean() < 1.03
    assert (squares.max(0) / squares.mean(0)).mean() < 1.06


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=9), st.data())
def test_bins_are_read_as_a_list_of_lists(lists: list[list[int]], data: st.DataObject) -> None:
    bins = Bins.of(lists)
    assert bins == lists and list(bins) == lists and len(bins) == len(lists)
    at = data.draw(st.slices(len(lists))) if lists else slice(None)
    assert bins[at] == lists[at]
    order = data.draw(st.permutations(range(len(lists))))
    assert bins.take(np.array(order, dtype=np.int64)) == [lists[number] for number in order]
    with pytest.raises(IndexError):
        _ = bins[len(lists)]


def test_packing_and_advice_load_no_torch() -> None:
    program = (
        "import json, sys, gobrrr.data as data\n"
        "data.pack([3, 4], 8); data.simulate({3: 9}, batch_size=2); list(data.BucketBatchSampler([3, 4], 2))\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "torch" not in json.loads(done.stdout) and "numpy" in json.loads(done.stdout)


def test_each_public_name_exists_and_unknown_ones_do_not() -> None:
    import gobrrr.data as data

    assert sorted(data.__all__) == data.__all__ and set(data.__all__) == set(data._LAZY)
    assert all(callable(getattr(data, name)) for name in data.__all__)
    with pytest.raises(AttributeError, match=r"gobrrr\.data.*nonsense"):
        _ = data.nonsense
