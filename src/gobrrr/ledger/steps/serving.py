"""How long do a serving engine's steps take, prefill and decode told apart, and how many tokens is that?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from gobrrr.recording.model.serving import Iteration

KINDS = ("decode", "prefill", "mixed")


class ServingClass(msgspec.Struct, frozen=True):
    """All steps of one kind. Medians, each by itself."""

    kind: str
    """decode, prefill, mixed: prompts and going on in one step."""
    count: int
    step_ns: float
    prompts: float | None
    sequences: float | None
    """Both null where the marks do not tell them apart."""
    tokens: float | None
    """Computed in a step; null where the marks do not say."""
    tokens_per_s: float | None
    """All tokens of these steps over all their time."""


def serving_classes(walls: Sequence[int], iterations: Sequence[Iteration]) -> tuple[ServingClass, ...]:
    """By kind, for steps of so many ns."""
    groups: dict[str, list[tuple[int, Iteration]]] = defaultdict(list)
    for wall, each in zip(walls, iterations, strict=True):
        groups[each.kind].append((wall, each))
    return tuple(_class(kind, groups[kind]) for kind in KINDS if kind in groups)


def _class(kind: str, steps: Sequence[tuple[int, Iteration]]) -> ServingClass:
    time = sum(wall for wall, _ in steps)
    tokens = [each.tokens for _, each in steps]
    known = [count for count in tokens if count is not None]
    all_known = len(known) == len(steps) and time > 0
    return ServingClass(
        kind, len(steps), float(median(wall for wall, _ in steps)), _median(each.prompts for _, each in steps),
        _median(each.sequences for _, each in steps), _median(known) if all_known else None,
        1e9 * sum(known) / time if all_known else None,
    )  # fmt: skip


def _median(numbers: Iterable[int | None]) -> float | None:
    """Return the median of those that are known."""
    known = [number for number in numbers if number is not None]
    return float(median(known)) if known else None
