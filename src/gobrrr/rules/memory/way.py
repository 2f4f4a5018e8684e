"""A change that saves memory: is it enough, alone or with others?"""

from __future__ import annotations

import msgspec

from gobrrr.recording.model.out_of_memory import OutOfMemory
from gobrrr.rules.memory.shortage import Shortage

TWINS = 2
"""Equal models that may all be in use: twin critics, say."""
NUM_WAYS = 5
"""Ways that are told (proposed: what one screen holds)."""
EXACT = "exact"
_ACTIVATIONS = ("activations",)
ROLES = {
    "fused_optimizer": ("update",), "no_foreach": ("update",), "optimizer_8bit": ("state",), "freeze": ("state",),
    "optimizer_in_backward": ("gradients",),
    "free_references": ("kept",), "copy_views": ("kept",), "end_others": ("others",),
    "large_input": ("activations", "kept"), "smaller_batch": ("activations", "kept"),
}  # fmt: skip
"""Roles of the bytes that a way saves; activations alone where it is not named."""


class Way(msgspec.Struct, frozen=True):
    """A change that saves bytes. `fits`: whether it would have been enough; null where that is not known."""

    name: str
    what: str
    saves: int = 0
    fits: bool | None = None
    exact: str = ""
    """What becomes of the numbers."""


def fits(way: Way, oom: OutOfMemory, short: Shortage) -> bool | None:
    """Return whether a way would have been enough; None where that is not known."""
    if short.missing is None or way.fits is False:
        return way.fits
    # What nobody is seen to hold may be objects of Python, or a library's; two equal models may both be in use.
    unsure = way.name == "return_freed" or (way.name == "old_models" and oom.repeated == TWINS)
    return False if way.saves < short.needed else None if unsure else True


def with_together(found: list[Way], short: Shortage) -> list[Way]:
    """Return the ways, led by those that are enough together where none is alone: of each role's bytes one, the largest
    first, as far as they are shown."""
    taken: dict[str, Way] = {}
    for way in found[: NUM_WAYS - 1] if found and all(way.fits is False for way in found) else ():
        roles = ROLES.get(way.name, _ACTIVATIONS)
        if way.name != "return_freed" and not taken.keys() & roles:
            taken |= dict.fromkeys(roles, way)
        ways = list(dict.fromkeys(taken.values()))
        if len(ways) > 1 and (saves := sum(each.saves for each in ways)) >= short.needed:
            numbers = [str(found.index(each) + 2) for each in ways]  # this one leads
            what = f"{', '.join(numbers[:-1])} and {numbers[-1]} of this list together"
            exact = "; ".join(dict.fromkeys(each.exact for each in ways if each.exact not in ("", EXACT)))
            return [Way("together", what, saves, True, exact), *found]
    return found
