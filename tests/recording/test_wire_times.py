"""Times as text, many at once: to the nanosecond what each by itself is."""

from __future__ import annotations

import random

import pytest

from gobrrr.recording.model.trace import NO_TIME
from gobrrr.recording.trace_files.wire import exact_time, exact_times

KINETO = b"1712195495519689.047"


def drawn(draw: random.Random) -> bytes:
    whole = str(draw.randrange(10 ** draw.randrange(1, 18)))
    odd = (
        f"{whole}",
        f"-{whole}.5",
        f"{whole}.1234",
        f"{whole}e3",
        '"12"',
        "null",
        "",
        f"{whole}.1x2",
        f"{whole[:-1]}/.123",
    )
    return draw.choice((*odd, *[f"{whole}.{draw.randrange(1000):03d}"] * 20)).encode()


@pytest.mark.parametrize("seed", range(20))
def test_many_times_are_what_each_is(seed: int) -> None:
    draw = random.Random(seed)
    texts = [drawn(draw) for _ in range(300)]
    assert exact_times(texts).tolist() == [exact_time(text) for text in texts]


def test_kinetos_times_keep_their_nanoseconds() -> None:
    assert exact_times([KINETO, b"1712195495519690.001"]).tolist() == [1712195495519689047, 1712195495519690001]
    assert exact_times([]).tolist() == []


@pytest.mark.parametrize("text", [b"9999999999999999.999", b"4611686018427388.000", b"171219549551968:.047"])
def test_what_is_no_time_or_beyond_all_is_none(text: bytes) -> None:
    assert exact_times([KINETO, text]).tolist() == [1712195495519689047, NO_TIME]
