"""The line of a step over its batch: against numbers made from a known one."""

from __future__ import annotations

import pytest

from gobrrr.trial.race.sweep import Point, next_size
from gobrrr.trial.statistics.scaling import bent, between, line, middle


def test_a_line_is_found_again_from_its_points() -> None:
    found = line([(n, 5e6 + 2e5 * n) for n in (1, 4, 32)])
    assert found is not None
    assert (found.fixed, found.each, found.spread) == pytest.approx((5e6, 2e5, 0.0), rel=1e-6, abs=1e-6)
    assert found.at(16) == pytest.approx(8.2e6)


def test_no_part_of_it_is_below_zero() -> None:
    steep, flat = line([(1, 1.0), (2, 4.0), (3, 9.0)]), line([(1, 3.0), (2, 2.0), (4, 1.0)])
    assert steep is not None
    assert steep.fixed == 0
    assert flat is not None
    assert flat.each == 0
    assert flat.largest(100) is None


def test_fewer_than_two_sizes_make_no_line() -> None:
    assert line([(8, 1.0), (8, 1.1)]) is None


def test_the_largest_that_fits_does_with_its_interval() -> None:
    found = line([(n, 1000 + 10.0 * n) for n in (1, 2, 4)])
    assert found is not None
    largest = found.largest(2000)
    assert largest is not None
    assert found.around(largest)[1] <= 2000 < found.around(largest + 1)[1]
    assert found.largest(10) == 0
    near = found.largest(1060)
    assert near is not None
    assert found.around(near)[1] <= 1060 < found.around(near + 1)[1]


def test_an_interval_widens_with_the_distance() -> None:
    found = line([(1, 500.2), (2, 500.1), (4, 500.4)])  # per sample nearly nothing: noise says how much
    assert found is not None
    low, high = found.around(4000)
    assert low <= 0
    assert high > 10_000
    largest = found.largest(1000)
    assert largest is not None
    assert largest < 400


def test_between_is_straight_and_nowhere_else() -> None:
    assert between([(2, 10.0), (4, 30.0)], 3) == 20.0
    assert between([(2, 10.0), (4, 30.0)], 5) is None


def test_the_middle_of_a_few_is_between_all() -> None:
    assert middle([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    median, low, high = middle([float(n) for n in range(100)])
    assert (median, low, high) == (49.5, 40.0, 59.0)  # ranks n/2 +- 0.98 sqrt(n)


def sizes(times: dict[int, float], now: int, most: int = 8) -> list[int]:
    """The sizes that a sweep of its own choice looks at, where a batch takes these times."""
    seen: list[int] = []
    while (size := next_size(now, [Point(str(n), times.get(n)) for n in seen], most)) is not None:
        seen.append(size)
    return seen


def test_sizes_double_while_samples_get_cheaper_then_halve() -> None:
    law = {2**n: 8.0 + 2**n for n in range(12)}
    cheaper = sizes(law, 16)
    assert cheaper[:4] == [16, 32, 64, 128]
    assert len(cheaper) <= 8
    linear = {n: 1.0 * n for n in range(64)}
    assert sizes(linear, 16)[:5] == [16, 32, 8, 4, 2]


def test_a_size_between_doublings_is_found() -> None:
    """A cache holds 50 samples: of the doublings 32 is best, and 48 is better by 18 %."""
    cached = {n: 20.0 + n * (1.0 if n <= 50 else 2.0) for n in range(1, 512)}
    looked = sizes(cached, 16)
    assert looked == [16, 32, 64, 8, 4, 2, 48, 56]
    rates = [n / cached[n] for n in range(1, 65)]
    assert max(n / cached[n] for n in looked) >= 0.95 * max(rates)
    assert sizes({1: 1.0, 2: 1.0, 4: 2.5}, 1)[-1] == 3, "beside the best, as far as there is a size"


def test_a_cliff_is_looked_into() -> None:
    """A small GPT on two cores: a batch of 16 takes twice a sample's time, 14 is the best of all."""
    times = {1: 53.0, 2: 84.0, 3: 107.0, 4: 140.0, 5: 182.0, 6: 220.0, 8: 290.0, 12: 430.0, 14: 471.0, 16: 1000.0}
    looked = sizes(times, 8)
    assert {12, 14} <= set(looked)
    assert len(looked) <= 8


def test_what_did_not_fit_ends_the_doubling() -> None:
    assert sizes({16: 1.0, 32: 1.1, 8: 0.9, 4: 0.8, 2: 0.8}, 16) == [16, 32, 64, 8, 4, 2, 48, 24]


def test_a_line_that_bends_is_told_from_its_upper_end() -> None:
    flat = [(1, 1000.0), (2, 1000.0)]
    rising = [(n, 500.0 + 130 * n) for n in (4, 8, 16)]
    found = bent(flat + rising)
    assert found is not None
    assert found.at(32) == pytest.approx(500 + 130 * 32)
    two = bent([*flat, (4, 1400.0)])
    assert two is not None
    assert two.each == pytest.approx(200)
    assert two.spread > 0.02, "two points alone say less"
    assert bent([(1, 5.0)]) is None
    over = bent([(1, 400.0), (2, 455.0), (4, 565.0), (8, 795.0), (16, 790.0)])
    assert over is not None
    assert over.each > 10, "what flattens at its end is not taken for flat"


def test_a_peak_over_the_length_may_have_a_square() -> None:
    attention = [(n, 300e6 + 4e4 * n + 50.0 * n * n) for n in (256, 512, 1024, 2048)]
    found = line(attention[:3], squared=True)
    assert found is not None
    assert found.squared == pytest.approx(50.0, rel=1e-3)
    assert found.around(2048)[0] < attention[3][1] < found.around(2048)[1]
    most = found.largest(800e6)
    assert most is not None
    assert found.around(most)[1] <= 800e6 < found.around(most + 1)[1]
    straight = line([(n, 3e8 + 4e4 * n * (1.001 if n == 512 else 1)) for n in (256, 512, 1024)], squared=True)
    assert straight is not None
    assert straight.squared == 0, "noise is no square"
    assert line(attention[:2], squared=True) == line(attention[:2])
    assert line(attention) == line(attention, squared=False)
    assert found.scaled(2, 1.0).at(10) == pytest.approx(1 + 2 * (found.at(10) - found.fixed))


def test_a_square_beside_a_large_fixed_part_is_seen() -> None:
    """The points lie within 0.3 % of a straight line, and what it says of 8,192 is half the truth."""
    found = line([(n, 2e9 + 50.0 * n * n) for n in (128, 256, 512)], squared=True)
    assert found is not None
    low, high = found.around(8192)
    assert low <= 2e9 + 50 * 8192**2 <= high


def test_a_line_through_all_points_is_kept_though_another_is_near() -> None:
    near = line([(1000, 1010.0), (1010, 1019.5)])  # 60 + 0.95 n; n alone is within 1 %
    assert near is not None
    assert (near.fixed, near.each) == pytest.approx((60.0, 0.95))


def test_two_points_lie_on_every_line() -> None:
    two, three = line([(2, 10.0), (4, 18.0)]), line([(2, 10.0), (3, 14.0), (4, 18.0)])
    assert two is not None
    assert three is not None
    assert two.around(4)[1] - two.at(4) == pytest.approx(2 * (three.around(4)[1] - three.at(4)))
