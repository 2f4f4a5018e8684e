"""Cost of a step at a price per hour, and what each finding wastes of it: the one place that computes money.

The price is the user's (`--price-per-hour`, or GOBRRR_PRICE_PER_HOUR), in whichever currency; nobody looks it up.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from gobrrr import units
from gobrrr.rules.verdict.report import Money, Report, Waste
from gobrrr.rules.verdict.sentence import is_doubt

HOUR_NS = 3.6e12  # ns in an hour: 3600 s of 1e9 ns
MILLION = 1e6  # samples or tokens that a price is told for
NUM_WASTES = 3  # wastes told at most; proposed: as many as brief.NUM_FINDINGS; settled by what readers ask for


def priced(report: Report, per_hour: float | None) -> Report:
    """The report with what it costs; as it is without a price."""
    wall = report.step.plain_wall_ns
    if per_hour is None or wall <= 0:
        return report
    step, samples = of_time(wall, per_hour), report.step.samples
    average = of_time(report.step.whole_ns(rare=True), per_hour)  # an epoch has its slow steps too
    tokens = report.tokens.per_s if report.tokens else None
    money = Money(
        per_hour=per_hour,
        step=step,
        epoch=average * report.step.epoch_steps if report.step.epoch_steps else None,
        million_samples=MILLION * average / samples if samples else None,
        million_tokens=MILLION * of_time(1e9 / tokens, per_hour) if tokens else None,
        wastes=tuple(_wastes(report, per_hour)),
    )
    return replace(report, money=money)


def of_time(ns: float, per_hour: float) -> float:
    """Return the cost of `ns` nanoseconds."""
    return ns / HOUR_NS * per_hour


def _wastes(report: Report, per_hour: float) -> Iterator[Waste]:
    """Cost of each finding per hour: its part of the step; between steps it may be more. And the saving of each remedy
    that was rehearsed on this run's ops; others have only the finding's figure."""
    for finding in report.findings:
        saving, wall = finding.saving, report.step.whole_ns(finding.rare)
        if saving.ceiling_ns > 0 and not is_doubt(finding):
            known = [(each.remedy, each.saving.expected_ns) for each in finding.rehearsed]
            remedies = tuple((name, min(1.0, ns / wall) * per_hour) for name, ns in known if ns > 0)
            parts = (min(1.0, ns / wall) for ns in (saving.low_ns, saving.expected_ns, saving.ceiling_ns))
            low, expected, ceiling = (part * per_hour for part in parts)
            yield Waste(finding.code, low, expected, ceiling, remedies)


def sentences(money: Money) -> list[str]:
    """Say what a step costs, then which findings waste most: 'BRR401 wastes 0.97 of it (0.39 to 1.33)'."""
    costs = (("a step costs", money.step), ("an epoch", money.epoch), ("a million samples", money.million_samples),
             ("a million tokens", money.million_tokens))  # fmt: skip
    parts = [f"{what} {units.money(cost)}" for what, cost in costs if cost is not None]
    return [f"at {units.money(money.per_hour)} per hour {', '.join(parts)}", *map(_waste, money.wastes[:NUM_WASTES])]


def _waste(waste: Waste) -> str:
    span = f"{units.money(waste.low)} to {units.money(waste.ceiling)}"
    remedies = ", ".join(f"{name} saves {units.money(saved)}" for name, saved in waste.remedies)
    return f"{waste.code} wastes {units.money(waste.expected)} per hour ({span}){f': {remedies}' if remedies else ''}"


def pay_back(part: float, spent_s: float, per_hour: float) -> str:
    """Say what a trial cost and what is saved from then on. The hours until it has paid are the same at every price."""
    cost, saved, price = map(units.money, (of_time(1e9 * spent_s, per_hour), part * per_hour, per_hour))
    return f"it cost {cost}; then {saved} of every {price} per hour stay with you"
