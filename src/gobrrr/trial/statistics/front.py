"""Which of several points does no other one beat in everything (the Pareto front)?"""

from __future__ import annotations

from collections.abc import Sequence


def unbeaten(costs: Sequence[tuple[float, ...]]) -> list[bool]:
    """Say of each point whether no other one costs as little in all and less in one."""
    return [not any(other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in costs)
            for mine in costs]  # fmt: skip
