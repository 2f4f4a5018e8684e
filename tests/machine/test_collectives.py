"""The probe of all-reduces: it ends with times of each size, or with nothing."""

from __future__ import annotations

import sys

import pytest

from gobrrr.machine.measure.collectives import all_reduces

pytest.importorskip("torch")


def test_larger_sums_take_longer() -> None:
    found = all_reduces([256, 16 << 20, 256], 2)
    assert list(found) == [256, 16 << 20] and 0 < found[256] < found[16 << 20]


@pytest.mark.parametrize("how", [{"ranks": 1}, {"ranks": 99}, {"ranks": 2, "interpreter": "/bin/false"}])
def test_what_cannot_be_started_is_nothing(how: dict[str, object]) -> None:
    assert all_reduces([256], **{"interpreter": sys.executable, **how}) == {}  # type: ignore[arg-type]
