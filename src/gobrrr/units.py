"""Nanoseconds, bytes and FLOPs as text: the one place that rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable

PAGE = 4096
"""Bytes that one page fault brings."""
_TIME = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    size = abs(value)
    for factor, unit in steps:
        if size >= factor:
            return f"{_digits(value / factor)} {unit}"
    return f"{_digits(value)} {steps[-1][1]}" if value else f"0 {steps[-1][1]}"


def _digits(value: float) -> str:
    """Three significant digits, without exponent."""
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def duration(ns: float) -> str:
    """1234567 -> '1.23 ms'."""
    return _scaled(ns, _TIME)


def size(num_bytes: float) -> str:
    """Binary multiples: 1048576 -> '1.00 MiB'."""
    return _scaled(num_bytes, ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")))


def energy(joules: float) -> str:
    """'1.90 J', '12.4 kJ'; from a tenth of a kilowatt-hour on '0.250 kWh'."""
    if joules >= 3.6e5:
        return f"{_digits(joules / 3.6e6)} kWh"
    return _scaled(joules, ((1e3, "kJ"), (1, "J"), (1e-3, "mJ")))


def flops(count: float) -> str:
    """A count of floating-point operations; a multiply-add is two."""
    return _scaled(count, ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1, "FLOP")))


def flop_rate(per_second: float) -> str:
    """FLOP/s."""
    return f"{flops(per_second)}/s"


def byte_rate(per_second: float) -> str:
    """Decimal bytes per second, as memory vendors count."""
    return _scaled(per_second, ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")))


def several(what: str, count: int) -> str:
    """'5 batches', '2 updates of Adam at a.py:3', '3 notes on the measurement'."""
    head, link, rest = next(
        (parts for parts in (what.partition(" of "), what.partition(" on ")) if parts[1]), (what, "", "")
    )
    ending = "" if count == 1 else "es" if head.endswith(("ch", "ss")) else "s"
    return f"{count} {head}{ending}{link}{rest}"


def shape_text(shape: Iterable[object]) -> str:
    """(2, 3) -> '2x3', () -> 'scalar'."""
    return "x".join(map(str, shape)) or "scalar"


def share(part: float) -> str:
    """0.1234 -> '12.3 %', -0.0001 -> '0.0 %'."""
    return f"{round(100 * part, 1) + 0.0:.1f} %"


def calls(count: float) -> str:
    """1412.0 -> '1,412', 3.5 -> '3.5': three digits, without an exponent."""
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def ratio_to(part: float, name: str) -> str:
    """(0.5, 'the median') -> '50.0 % of the median', (8.8, 'the median') -> '8.8 times the median'."""
    return f"{share(part)} of {name}" if abs(part) <= 1 else f"{part:.1f} times {name}"


def interval(low: float, high: float) -> str:
    """Two durations with the unit said once: '61.1 to 63.4 ms'."""
    return f"{bare(low, high)} to {duration(high)}"


def money(amount: float) -> str:
    """No currency, two decimals; three digits where less than 0.1: 1234.5 -> '1,234.50', 0.000154 -> '0.000154'."""
    if abs(amount) >= 0.1 or not amount:
        return f"{amount:,.2f}"
    return f"{amount:.3g}" if abs(amount) < 1e-5 else f"{amount:.{2 - math.floor(math.log10(abs(amount)))}f}"


def bare(ns: float, beside: float) -> str:
    """A duration to stand beside another, in that one's unit and without it: (400000, 62e6) -> '0.40'."""
    factor = next((factor for factor, _ in _TIME if abs(beside) >= factor), 1.0)
    return _digits(ns / factor) if ns else "0"


def rough(ns: float, beside: float = 0.0) -> str:
    """A duration with two digits: 44.9e6 -> '45 ms'; in the unit of the one that it stands beside, without it: '45'."""
    digits = float(f"{ns:.2g}")
    factor, unit = next(((f, unit) for f, unit in _TIME if abs(beside or digits) >= f), _TIME[-1])
    text = f"{digits / factor:.10g}" if digits >= factor / 100 else "0"
    return text if beside else f"{text} {unit}"
