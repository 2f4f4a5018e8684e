"""Loaders as they were used: the iterators of one loader joined, with how every epoch began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gobrrr.recording import marks
from gobrrr.recording.steps import usual_mode

Key = tuple[Any, ...]
_WANTED = (
    marks.ITER, marks.DATA_BEGIN, marks.DATA_END, marks.FORWARD, marks.BOUNDARY, marks.REST_BEGIN, marks.REST_END,
)  # fmt: skip


def loaders(
    events: npt.NDArray[np.int64], raw: Sequence[dict[str, Any]], main: tuple[int, int] | None = None
) -> list[dict[str, Any]]:
    """One entry per loader, in the shape of recording.facts.LoaderFacts. Iterators of one loader share a `key`. `main`:
    kind and number of the loop that takes the time."""
    merged: dict[Key, dict[str, Any]] = {}
    for entry in raw:
        merged.setdefault(_key(entry), {name: value for name, value in entry.items() if name != "key"})
    used = _used(events, {n: _key(entry) for entry in raw if isinstance(n := entry.get("id"), int)}, main)
    return [
        {
            **entry, "iter_ns": used[key].starts, "first_wait_ns": used[key].firsts,
            "first_step_ns": used[key].steps, "end_wait_ns": used[key].ends, "num_batches": used[key].num_batches,
            "step_batches": used[key].step_batches, "unseen_epochs": used[key].unseen,
        }
        for key, entry in merged.items()
    ]  # fmt: skip


@dataclass
class _Use:
    """Of one loader, by epoch: from iter() to the first request, the first wait, the rest of that step, the request
    that finds the epoch over. `unseen`: epochs that began while the hooks rested. `step_batches`: those that the main
    loop's steps took, as LoaderFacts has them."""

    starts: list[int] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    batches: int = 0
    step_batches: int = 0
    unseen: int = 0
    watched_steps: int = 0
    resting_steps: int = 0

    @property
    def num_batches(self) -> int:
        """Batches, those of rests as in the steps that were watched."""
        return self.batches + round(self.resting_steps * self.batches / max(1, self.watched_steps))


def _key(entry: dict[str, Any]) -> Key:
    key = entry.get("key")
    return tuple(str(part) for part in key) if isinstance(key, list) else ()


def _used(
    events: npt.NDArray[np.int64], key_of: dict[Any, Key], main: tuple[int, int] | None
) -> dict[Key, _Use]:
    """How every loader was used."""
    used: dict[Key, _Use] = defaultdict(_Use)
    mode = usual_mode(events, main) if main else None
    steps = {False: 0, True: 0}  # of the main loop, by whether the hooks rested
    since: list[_Use] = []  # of each batch since the main loop's last step, or since a forward that is none of it
    last = _Use()
    made = begun = resting = 0
    first: tuple[_Use, int] | None = None
    wanted = np.isin(events[:, 1], _WANTED)
    for t, kind, number, value in events[wanted].tolist():
        if kind == marks.REST_BEGIN or kind == marks.REST_END:
            resting, made, first = kind == marks.REST_BEGIN, 0, None
            since.clear()
        elif kind == marks.FORWARD:
            if value != mode:
                since.clear()
        elif kind == marks.BOUNDARY:
            if first:
                first[0].steps.append(t - first[1])
            first = None
            last.resting_steps += resting
            last.watched_steps += not resting
            if (value, number) == main:
                steps[bool(resting)] += 1
                for use in since:
                    use.step_batches += 1
                since.clear()
        elif kind == marks.ITER and resting:
            last.unseen += 1
        elif kind == marks.ITER:
            made = t
        else:
            use = last = used[key_of.get(number, ())]
            if kind == marks.DATA_BEGIN:
                begun = t
                if made:
                    use.starts.append(t - made)
                continue
            if value == 0:
                use.batches += 1
                since.append(use)
            if value:
                use.ends.append(t - begun)
            elif made:
                use.firsts.append(t - begun)
                first = use, t
            made = 0
    for use in used.values():
        use.step_batches = round(use.step_batches * sum(steps.values()) / max(1, steps[False]))
    return used
