"""Say what a combination brought, at which price, and how its numbers compare. JSON keeps its own words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from gobrrr import units
from gobrrr.system.escape import plain
from gobrrr.trial.receipt.receipt import Measured, Receipt, Speedup, TrialResult

Found: TypeAlias = TrialResult | Receipt | Measured
EVEN = 0.05
"""Share of a step's time within which its interval must lie for it to take as long as before."""
WILD = 10.0
"""Ratio of its ends from which an interval around 1 is no figure: "0.27x (0.00 to 152.90)" came of three blocks."""


def times(speedup: Speedup) -> str:
    """'1.24x (1.21 to 1.27)'."""
    if speedup.low < 1.0 < speedup.high and speedup.high > WILD * speedup.low:
        return "blocks that scatter too much for a figure"
    return f"{speedup.median:.2f}x ({speedup.low:.2f} to {speedup.high:.2f})"


def change(memory: Speedup) -> str:
    """'-43 % (-45 to -41)', of a peak, from its ratio."""
    middle, most, least = (f"{round(100 * (1 / ratio - 1)):+d}" for ratio in (memory.median, memory.high, memory.low))
    return f"{middle} % ({most} to {least})"


def price(speedup: Speedup | None) -> str:
    """'a step takes 1.20 times as long', which is said of time where it was not the objective."""
    if speedup is None or not _is_ratio(speedup):
        return "what a step takes is not known"
    if 1 - EVEN <= speedup.low <= 1.0 <= speedup.high <= 1 + EVEN:
        return "a step takes as long as before"
    if speedup.low <= 1.0:
        return f"a step takes {1 / speedup.median:.2f} times as long ({1 / speedup.high:.2f} to {1 / speedup.low:.2f})"
    return f"a step is {speedup.median:.2f} times as fast ({speedup.low:.2f} to {speedup.high:.2f})"


def gain(found: Found) -> Speedup | None:
    """The gain in what was to shrink; None where it was not measured, or a file says what is no ratio."""
    objective = "" if isinstance(found, Measured) else found.objective
    own = {"memory": found.memory, "energy": found.energy}
    whole = own[objective] if objective in own else found.memory or found.energy or found.speedup
    return whole if whole is not None and _is_ratio(whole) else None


def lowest_gain(trial: TrialResult) -> float:
    """Return the low end of its interval; -1 where nothing was measured."""
    return found.low if (found := gain(trial)) is not None else -1.0


def energy(found: Speedup, speed: Speedup | None = None) -> str:
    """'0.82 of the energy (0.80 to 0.85), 1.30x as fast'."""
    fast = f", {speed.median:.2f}x as fast" if speed is not None and _is_ratio(speed) else ""
    return f"{1 / found.median:.2f} of the energy ({1 / found.high:.2f} to {1 / found.low:.2f}){fast}"


def _is_ratio(speedup: Speedup) -> bool:
    return min(speedup.low, speedup.median, speedup.high) > 0


def figures(found: Found) -> str:
    """'1.24x (1.21 to 1.27)', or 'peak -43 % (-45 to -41), a step takes 1.20 times as long (1.15 to 1.25)'."""
    whole = gain(found)
    if whole is None:
        return "not measured"
    if found.energy is not None:
        return energy(found.energy, found.speedup)
    return times(whole) if found.memory is None else f"peak {change(whole)}, {price(found.speedup)}"


def final(receipt: Receipt) -> TrialResult | None:
    """The confirmation."""
    return next((trial for trial in reversed(receipt.trials) if trial.purpose == "final"), None)


def as_written(receipt: Receipt) -> float | None:
    """The untouched program's figure that was to shrink: ns or joules of a step, ns of a sample, bytes of its peak."""
    confirmed = final(receipt)
    if receipt.objective == "memory":
        return confirmed.step_peak_bytes[0] if confirmed is not None else None
    if receipt.objective == "energy":
        return confirmed.step_joules[0] if confirmed is not None else None
    return receipt.step_ns / (per_step(receipt) or 1.0) if receipt.step_ns is not None else None


def per_step(receipt: Receipt) -> float | None:
    """Samples of the untouched program's step, where those were counted."""
    confirmed = final(receipt)
    if confirmed is None or receipt.objective != "throughput":
        return None
    return confirmed.samples.per_step(0)


def size(receipt: Receipt, figure: float) -> str:
    """Such a figure, in its unit."""
    return {"memory": units.size, "energy": units.energy}.get(receipt.objective, units.duration)(figure)


def head(receipt: Receipt) -> tuple[str, str]:
    """Return the first sentence, which says the gain: the words that count most, and the rest."""
    speedup, before = receipt.speedup, as_written(receipt)
    if receipt.memory is not None:
        after = (
            f"Peak {units.size(before / receipt.memory.median)} instead of {units.size(before)}" if before else "Peak"
        )
        return after, f", {change(receipt.memory)}; {price(speedup)}"
    if (of := receipt.energy) is not None:
        step = f", {units.energy(before)} to {units.energy(before / of.median)} per step" if before else ""
        rest = f" (95 % interval {1 / of.high:.2f} to {1 / of.low:.2f}){step}; {price(speedup)}"
        return f"{1 / of.median:.2f} of the energy", rest
    assert speedup is not None, "gain() is asked first"
    what = "sample" if per_step(receipt) else "step"
    step = f", {units.duration(before)} to {units.duration(before / speedup.median)} per {what}" if before else ""
    rest = f" (95 % interval {speedup.low:.2f} to {speedup.high:.2f}){step}"
    if receipt.objective == "throughput":
        return f"{speedup.median:.2f} times as many samples per second", rest
    return f"{speedup.median:.2f} times as fast", rest


SPEED = {"equivalent": "no difference", "inconclusive": "no clear difference"}
NUMBERS = {"exact": "match", "equivalent": "match"}
ROUNDING = dict.fromkeys(("bf16_autocast", "bf16_gradients", "matmul_precision"), "bf16 rounding")
"""Remedies that lower the precision, and what the guard then allows; tests/report holds it to the remedies."""
ORDER = ("data:", "random draws:", "epochs:")
"""Beginnings of the guard's reasons where samples or draws come otherwise: then losses are held against other seeds."""


class Judged(Protocol):
    """Verdict of the guard, which is a room of its own: guard.model.verdict.Guarded."""

    @property
    def verdict(self) -> str: ...

    @property
    def reasons(self) -> tuple[str, ...]: ...

    @property
    def gates(self) -> Sequence[object]: ...


def speed(verdict: str) -> str:
    """'no clear difference'."""
    return plain(SPEED.get(verdict, verdict))


def numbers(found: Judged, remedies: Iterable[str] = ()) -> str:
    """'match' or 'within bf16 rounding', to stand behind 'numbers'. `remedies`: those that it is said of."""
    if found.gates and found.verdict == "bounded":
        return "as its gate allows"
    if found.verdict != "bounded":
        return plain(NUMBERS.get(found.verdict, found.verdict))
    allowed = [ROUNDING[name] for name in remedies if name in ROUNDING]
    allowed += ["seed variation"] if any(reason.startswith(ORDER) for reason in found.reasons) else []
    return f"within {' and '.join(dict.fromkeys(allowed)) or 'rounding'}"


def start_up(receipt: Receipt) -> list[str]:
    """Return what the kept remedies cost at the start, and after how many steps that is paid back."""
    lines = []
    for trial in receipt.trials:
        cost = trial.start_up
        if trial.purpose != "final" or not receipt.kept or not cost.steps_to_pay or cost.steps_to_pay < 1:
            continue
        enough = ""
        if cost.program_steps is not None:
            pays = cost.program_steps >= cost.steps_to_pay
            enough = f"; this program makes {cost.program_steps:,}" + ("" if pays else ": it does not pay here")
        pays_after = f"pays after {cost.steps_to_pay:,.0f} steps{enough}"
        lines.append(f"it costs {cost.seconds:.1f} s at the start and {pays_after}")
    return lines
