"""A sweep, for a person: a row for each value, how the step grows, the knee, the best, and what fits."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.report.memory.out_of_memory import ways_out
from gobrrr.report.told.blocks import Block, Cell, Fact, Groups, Line, Sentence, Table
from gobrrr.trial.race.sweep import Point
from gobrrr.trial.receipt.swept import Fit, Swept
from gobrrr.trial.statistics.scaling import DOUBLING
from gobrrr.units import duration, interval, share, size

ODD = 0.1
"""Deviation of the points from which they are told to lie on no line (proposed)."""
ANOTHER = (
    "Another batch size is another training. The learning rate is usually scaled with it: linearly for SGD (arXiv "
    "1706.02677), by its square root for Adam (arXiv 2205.10287)."
)


def blocks(found: Swept) -> Groups:
    """Return what is told: the conclusion, a row for each value, how time and memory grow, what fits."""
    return [
        [Sentence((((headline(found), "bold green"),),))],
        [_table(found)],
        [Fact("growth", list(_growth(found)))] if found.is_batch else [],
        _fit(found.fit) if found.fit is not None else [],
        [Fact("note", [ANOTHER])] if found.is_batch and found.best not in ("", found.now) else [],
    ]


def headline(found: Swept) -> str:
    """'batch_size 64 serves best: 1.84 times the samples per second of 16.'"""
    points = {point.value: point for point in found.points}
    if found.latency_ns and not found.best_within:
        return f"No {found.setting} keeps 99 % of its steps within {duration(found.latency_ns)}."
    best = found.best_within or found.best
    if not best and found.fit is not None and found.fit.largest == 0:
        return f"No {found.setting} fits into {size(found.fit.memory)}."
    if not best and found.fit is not None and found.fit.largest is not None:
        return f"{found.setting} {found.fit.largest} is the largest that fits into {size(found.fit.memory)}."
    if best not in points:
        return f"No {found.setting} could be measured."
    if best == found.now and not found.latency_ns:
        return f"{found.setting} {best}, as it is, serves best, or within 5 % of it."
    rate, now = found.samples_per_s(points[best]), points.get(found.now)
    base = found.samples_per_s(now) if now is not None else None
    what = "samples per second" if found.is_batch else "steps per second"
    within = f" within {duration(found.latency_ns)}" if found.latency_ns else ""
    beside = f": {rate / base:.2f} times the {what} of {found.now}" if rate and base and best != found.now else ""
    return f"{found.setting} {best} serves best{within}{beside}."


def _table(found: Swept) -> Table:
    if not found.best:  # peaks alone were asked for
        rows = tuple(tuple(_row(found, point)[at] for at in (0, 5, 6)) for point in found.points)
        return Table("", ((found.setting, True), ("peak", True), ("", False)), rows)
    rate = "samples/s" if found.is_batch else "steps/s"
    heads = (
        (found.setting, True),
        ("step", True),
        ("95 %", True),
        ("p99", True),
        (rate, True),
        ("peak", True),
        ("", False),
    )
    return Table("", heads, tuple(_row(found, point) for point in found.points))


def _row(found: Swept, point: Point) -> tuple[Cell, ...]:
    rate = found.samples_per_s(point)
    low, high = point.low_ns, point.high_ns
    mark = "best" if point.value == (found.best_within or found.best) else "now" if point.value == found.now else ""
    return (
        Cell(point.value, point.number),
        Cell(duration(point.step_ns) if point.step_ns else "", point.step_ns),
        Cell(interval(low, high) if low and high else ""),
        Cell(duration(point.p99_ns) if point.p99_ns else ""),
        Cell(f"{rate:,.4g}" if rate else "", rate),
        Cell(size(point.peak_bytes) if point.peak_bytes else "", point.peak_bytes),
        Cell(point.failed or mark),
    )


def _growth(found: Swept) -> Iterator[Line]:
    if (law := found.time_law) is not None:
        law_of = f"a step takes {duration(law.fixed)} and {duration(law.each)} per sample"
        yield f"{law_of}, within {share(2 * law.spread)}" if law.spread < ODD else "a step's time lies on no line"
    if (law := found.peak_law) is not None:
        law_of = f"its peak is {size(law.fixed)} and {size(law.each)} per sample"
        yield f"{law_of}, within {share(2 * law.spread)}" if law.spread < ODD else "its peak lies on no line"
    if found.knee is not None:
        yield f"from {found.knee} on a batch of twice the size makes the step longer by {share(DOUBLING)} or more"
    elif found.time_law is not None:
        yield f"nowhere here a batch of twice the size makes the step longer by {share(DOUBLING)}"


def _fit(fit: Fit) -> list[Block]:
    lines: list[Line] = []
    if fit.now_low and fit.now_high:
        fits = "fits" if fit.now_high <= fit.memory else "does not fit" if fit.now_low > fit.memory else "may not fit"
        lines.append(f"as it is: {size(fit.now_low)} to {size(fit.now_high)} of {size(fit.memory)}: {fits}")
    if fit.added:
        lines.append(
            f"of them {size(fit.added)} for context and libraries, 3 % for the allocator's rounding (both stated)"
        )
    if fit.roles:
        lines.append(", ".join(f"{name} {size(held)}" for name, held in fit.roles))
    found: list[Block] = [Fact("memory", lines)] if lines else []
    return [*found, *ways_out(fit.ways)]
