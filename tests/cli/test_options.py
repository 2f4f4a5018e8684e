"""Times and sizes as people write them."""

from __future__ import annotations

import argparse

import pytest

from gobrrr.cli.options import duration, size
from gobrrr.cli.verbs.run import parse_budget
from gobrrr.errors import GobrrrError


@pytest.mark.parametrize(
    ("text", "ns"), [("50ms", 50_000_000), ("0.2 s", 200_000_000), ("5m", 300_000_000_000), ("800us", 800_000)]
)
def test_times_are_read_in_ns(text: str, ns: int) -> None:
    assert duration(text) == ns


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("24GiB", 24 << 30), ("80GB", 80_000_000_000), ("24G", 24_000_000_000), ("1.5Gi", 3 << 29), ("512MB", 512_000_000),
     ("200kB", 200_000), ("200KiB", 200 << 10), ("200KB", 200_000), ("7B", 7)],
)  # fmt: skip
def test_sizes_are_read_in_bytes(text: str, num_bytes: int) -> None:
    assert size(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "0GiB", "1e99GB", "24 apples", "24", "nan B"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        size(text)
    with pytest.raises(argparse.ArgumentTypeError):
        duration(text)


def test_a_budget_is_a_time_a_size_or_both() -> None:
    assert parse_budget("30s") == (30_000_000_000, 512_000_000)
    assert parse_budget("200MB, 2min") == (120_000_000_000, 200_000_000)
    assert parse_budget("1GiB") == (60_000_000_000, 1 << 30)
    with pytest.raises(GobrrrError, match="soon"):
        parse_budget("soon")
