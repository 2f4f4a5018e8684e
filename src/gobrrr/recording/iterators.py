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
    marks.ITER, marks.DATA_BEGIN, marks.DATA_END, marks.BOUNDARY, marks.REST_BEGIN, marks.REST_END, marks.FORWARD,
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
            "step_batches": used[key].per_step, "unseen_epochs": used[key].unseen,
        }
        for key, entry in merged.items()
    ]  # fmt: skip


@dataclass
class _Use:
    """Of one loader, by epoch: from iter() to the first request, the first wait, the rest of that step, the request
    that finds the epoch over. `unseen`: epochs that began while the hooks rested."""

    starts: list[int] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    batches: int = 0
    unseen: int = 0
    watched_steps: int = 0
    resting_steps: int = 0
    per_step: float = 0.0
    of_steps: int = 0
    """Batches that the main loop's steps took."""
    since: int = 0
    """The same since the last of them, and of the training's own forwards or of nobody's."""
    open: bool = False
    """The last batch may be theirs: `ours` and `others` say whose forwards came since."""
    ours: bool = False
    others: bool = False

    @property
    def num_batches(self) -> int:
        """Batches, those of rests as in the steps that were watched."""
        return self.batches + round(self.resting_steps * self.batches / max(1, self.watched_steps))

    def given(self) -> None:
        """A batch was handed out."""
        self.batches += 1
        self.open, self.ours, self.others = True, False, False

    def forward(self, ours: bool) -> None:
        """Whose forward came, the training's or another's."""
        self.ours |= ours
        self.others |= not ours

    def decide(self) -> None:
        """The last batch was the training's, unless forwards of others alone came since: an evaluation. A teacher's
        come before the student's."""
        self.since += self.open and (self.ours or not self.others)
        self.open = False

    def forget(self) -> None:
        """What came since belongs to no step of the main loop, or to none that was seen."""
        self.since, self.open = 0, False


def _key(entry: dict[str, Any]) -> Key:
    key = entry.get("key")
    return tuple(str(part) for part in key) if isinstance(key, list) else ()


def _used(events: npt.NDArray[np.int64], key_of: dict[Any, Key], main: tuple[int, int] | None) -> dict[Key, _Use]:
    """How every loader was used."""
    used: dict[Key, _Use] = defaultdict(_Use)
    mode = usual_mode(events, main) if main and key_of else None
    num_steps = 0
    last = _Use()
    made = begun = resting = 0
    first: tuple[_Use, int] | None = None
    wanted = np.isin(events[:, 1], _WANTED if key_of else _WANTED[:-1])
    for t, kind, number, value in events[wanted].tolist():
        if kind == marks.REST_BEGIN or kind == marks.REST_END:
            resting, made, first = kind == marks.REST_BEGIN, 0, None
            for use in used.values():
                use.forget()
        elif kind == marks.FORWARD:
            for use in used.values():
                use.forward(value == mode)
        elif kind == marks.BOUNDARY:
            if first:
                first[0].steps.append(t - first[1])
            first = None
            last.resting_steps += resting
            last.watched_steps += not resting
            num_steps += _ends_step(used, (value, number) == main, value in marks.TRAINS, bool(resting))
        elif kind == marks.ITER and resting:
            last.unseen += 1
        elif kind == marks.ITER:
            made = t
        else:
            use = last = used[key_of.get(number, ())]
            if kind == marks.DATA_BEGIN:
                use.decide()
                begun = t
                if made:
                    use.starts.append(t - made)
                continue
            if value:
                use.ends.append(t - begun)
            else:
                use.given()
                if made:
                    use.firsts.append(t - begun)
                    first = use, t
            made = 0
    for use in used.values():
        use.per_step = use.of_steps / max(1, num_steps)
    return used


def _ends_step(used: dict[Key, _Use], main: bool, trains: bool, resting: bool) -> bool:
    """At a boundary of the main loop, or of another; whether a step of the main one ended that was watched."""
    if main and not resting:
        for use in used.values():
            use.decide()
            use.of_steps += use.since
    if main or trains:
        for use in used.values():
            use.forget()
    return main and not resting
