"""A sweep, for a person: a row for each value, how the step grows, the knee, the best, and what fits."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.report.forms.formats import PLAIN, View
from gobrrr.report.memory.out_of_memory import ways_out
from gobrrr.report.told import gates
from gobrrr.report.told.blocks import Block, Cell, Fact, Groups, Line, Sentence, Table, facts
from gobrrr.trial.race.sweep import Point
from gobrrr.trial.receipt.receipt import Gated
from gobrrr.trial.receipt.swept import Fit, Swept
from gobrrr.trial.statistics.scaling import DOUBLING
from gobrrr.units import duration, energy, interval, money, several, share, size

ODD = 0.1
"""Deviation of the points from which they are told to lie on no line (proposed)."""
WORTH = 0.02
"""Share of the peak that a value must save to be told (proposed: peaks of starts differ by 0.4 to 1.8 %)."""
ANOTHER = (
    "Another batch size is another training. The learning rate is usually scaled with it: linearly for SGD (arXiv "
    "1706.02677), by its square root for Adam (arXiv 2205.10287)."
)


def blocks(found: Swept, view: View = PLAIN) -> Groups:
    """Return what is told: the conclusion, a row for each value, how time and memory grow, what fits."""
    return [
        [Sentence((((headline(found), "bold green"),),))],
        [_table(found)],
        facts([("growth", [*_growth(found)]), ("memory", [] if found.is_batch else [*_trades(found)])]),
        facts([("gates", [*_gates(found)])]),
        _fit(found.fit, peaks_alone=not found.best) if found.fit is not None else [],
        [Fact("note", [ANOTHER])] if found.is_batch and found.best not in ("", found.now) else [],
    ]


ONCE = ", but it was measured once: give more --minutes."


def headline(found: Swept) -> str:
    """'batch_size 64 serves best: 1.84 times the samples per second of 16.'"""
    points = {point.value: point for point in found.points}
    if found.latency_ns and not found.best_within:
        return f"No {found.setting} keeps 99 % of its steps within {duration(found.latency_ns)}."
    best = found.best_within or found.best
    if not best and found.fit is not None and found.fit.largest == 0:
        return f"No {found.setting} fits into {size(found.fit.memory)}."
    if not best and found.fit is not None and found.fit.largest is not None:
        fits = "fits" if _checked(found.fit) else "should fit"
        return f"{found.setting} {found.fit.largest} is the largest that {fits} into {size(found.fit.memory)}."
    if not best and found.fit is not None and found.peak_law is not None:
        return f"The peak does not grow with {found.setting}, as far as it was measured."
    if not best and (found.gates or found.unread) and any(point.step_ns for point in found.points):
        return f"No {found.setting} that was measured is within its gates."
    if best not in points:
        return f"No {found.setting} could be measured."
    once = any(point is not None and _was_measured_once(point) for point in (points[best], points.get(found.now)))
    if best == found.now and not found.latency_ns:
        told = f"{found.setting} {best}, as it is, {'may serve' if once else 'serves'} best, or within 3 % of it"
        return f"{told}{ONCE if once else '.'}"
    now = points.get(found.now)
    if found.objective == "energy":
        least, joules = found.joules(points[best]), found.joules(now) if now is not None else None
        of = f": {least / joules:.2f} of the energy of {found.now}" if least and joules and best != found.now else ""
        per = f", {energy(least)} per {'sample' if found.is_batch else 'step'}" if least else ""
        return f"{found.setting} {best} takes least energy{per}{of}."
    rate = found.samples_per_s(points[best])
    base = found.samples_per_s(now) if now is not None else None
    what = "samples per second" if found.is_batch else "steps per second"
    within = " within its gates" if found.gates and best != found.now else ""
    within += f" within {duration(found.latency_ns)}" if found.latency_ns else ""
    beside = f": {rate / base:.2f} times the {what} of {found.now}" if rate and base and best != found.now else ""
    return f"{found.setting} {best} {'may serve' if once else 'serves'} best{within}{beside}{ONCE if once else '.'}"


def _was_measured_once(point: Point) -> bool:
    return point.step_ns is not None and point.blocks == 1


def _table(found: Swept) -> Table:
    if not found.best and not found.gates:  # peaks alone were asked for
        rows = tuple(tuple(_row(found, point)[at] for at in (0, -2, -1)) for point in found.points)
        return Table("", ((found.setting, True), ("peak", True), ("", False)), rows)
    unit = "samples" if found.is_batch else "steps"
    names = (found.setting, "step", "95 %", "p99", f"{unit}/s", "tokens/s", "MFU", f"1M {unit}", f"energy/{unit[:-1]}",
             "peak", *(gate.name for gate in _first(found)), "")  # fmt: skip
    every = [_row(found, point) for point in found.points]
    told = [at for at, name in enumerate(names) if not name or any(row[at].text for row in every)]
    heads = tuple((names[at], bool(names[at])) for at in told)
    return Table("", heads, tuple(tuple(row[at] for at in told) for row in every))


def _row(found: Swept, point: Point) -> tuple[Cell, ...]:
    rate = found.samples_per_s(point)
    low, high, tokens = point.low_ns, point.high_ns, found.tokens_per_s(point)
    mfu, price, told = found.mfu(point), found.million(point), found.gates.get(point.value, ())
    return (
        Cell(point.value, point.number),
        Cell(duration(point.step_ns) if point.step_ns else "", point.step_ns),
        Cell(interval(low, high) if low and high else "", low),
        Cell(duration(point.p99_ns) if point.p99_ns else "", point.p99_ns),
        Cell(f"{rate:,.4g}" if rate else "", rate),
        Cell(f"{tokens:,.4g}" if tokens else "", tokens),
        Cell(share(mfu) if mfu else "", mfu),
        Cell(money(price) if price else "", price),
        Cell(energy(joules) if (joules := found.joules(point)) else "", joules),
        Cell(size(point.peak_bytes) if point.peak_bytes else "", point.peak_bytes),
        *(Cell(f"{gates.change(gate, interval=False)} {gate.verdict}", gate.change) for gate in told),
        *(Cell("") for _ in (() if told else _first(found))),
        Cell(point.failed or mark(found, point)),
    )


def _first(found: Swept) -> tuple[Gated, ...]:
    return next(iter(found.gates.values()), ())


def mark(found: Swept, point: Point) -> str:
    """Return whether a value is the best or the program's own, else with gates whether another one beats it."""
    is_best, is_now = point.value == (found.best_within or found.best), point.value == found.now
    told = "best, now" if is_best and is_now else "best" if is_best else "now" if is_now else ""
    return told or ("not beaten" if point.value in found.unbeaten else found.unread.get(point.value, ""))


def _gates(found: Swept) -> Iterator[Line]:
    for value, told in found.gates.items():
        yield from (f"{found.setting} {value}: {gates.sentence(gate)}" for gate in told)
    if found.unbeaten:
        yield f"not beaten in speed and measure: {', '.join(found.unbeaten)}"


def _growth(found: Swept) -> Iterator[Line]:
    if (law := found.time_law) is not None:
        law_of = f"a step takes {duration(law.fixed)} and {duration(law.each)} per sample"
        yield f"{law_of}, within {share(2 * law.spread)}" if law.spread < ODD else "a step's time lies on no line"
    if (law := found.peak_law) is not None:
        n = "sample" if found.is_batch else found.setting
        per = [f"{size(part)} per {of}" for part, of in ((law.each, n), (law.squared, f"{n} squared")) if part]
        law_of = f"its peak is {' and '.join([size(law.fixed), *per])}"
        yield f"{law_of}, within {share(2 * law.spread)}" if law.spread < ODD else "its peak lies on no line"
    if found.knee is not None:
        yield f"from {found.knee} on a batch of twice the size makes the step longer by {share(DOUBLING)} or more"
    elif found.time_law is not None and {2 * point.number for point in found.points} & {
        point.number for point in found.points
    }:
        yield f"nowhere here a batch of twice the size makes the step longer by {share(DOUBLING)}"


def _trades(found: Swept) -> Iterator[Line]:
    """'all: 26 % less memory, 1.31 times the step': values that nothing measured beats in both."""
    timed = {point.value: point for point in found.points if point.step_ns and point.peak_bytes and not point.failed}
    own = timed.get(found.now)
    if own is None:
        return
    step, peak, least = own.step_ns or 1.0, own.peak_bytes or 1, own.peak_bytes or 1
    for point in sorted(timed.values(), key=lambda point: point.step_ns or 0.0):
        if (held := point.peak_bytes or 0) < (1 - WORTH) * least:
            least = held
            times = (point.step_ns or 0.0) / step
            yield f"{point.value}: {share(1 - held / peak)} less memory, {times:.2f} times the step"


def _checked(fit: Fit) -> list[int]:
    """Peaks of the value that is told, where it was run as it is."""
    return [point.peak_bytes for point in fit.as_it_is if point.number == fit.largest and point.peak_bytes]


def _fit(fit: Fit, *, peaks_alone: bool) -> list[Block]:
    lines: list[Line] = []
    if fit.now_low and fit.now_high:
        fits = "fits" if fit.now_high <= fit.memory else "does not fit" if fit.now_low > fit.memory else "may not fit"
        lines.append(f"as it is: {size(fit.now_low)} to {size(fit.now_high)} of {size(fit.memory)}: {fits}")
    if fit.added:
        lines.append(
            f"of them {size(fit.added)} for context and libraries, 3 % for the allocator's rounding (both stated)"
        )
    if checked := _checked(fit):
        starts = several("start", len(checked))
        lines.append(f"checked: {fit.largest} held {size(max(checked))} at most in {starts}")
    elif fit.largest and peaks_alone and not fit.added:
        lines.append(f"predicted: {fit.largest} was not run, for want of time or of memory here")
    if fit.keeps > WORTH:
        kept = f"of that {share(fit.keeps / (1 + fit.keeps))} is freed memory that the C library keeps"
        more = (fit.largest_returned or 0) > (fit.largest or 0)
        back = (
            f"; MALLOC_MMAP_THRESHOLD_=65536 in the environment returns it: then {fit.largest_returned} is the largest"
        )
        lines.append(kept + (back if more else ""))
    elif peaks_alone and not any(point.peak_bytes for point in fit.as_it_is) and not fit.added:
        lines.append("without the freed memory that the C library keeps: there was no time to measure that")
    if fit.roles:
        lines.append(", ".join(f"{name} {size(held)}" for name, held in fit.roles))
    found: list[Block] = [Fact("memory", lines)] if lines else []
    return [*found, *ways_out(fit.ways)]
