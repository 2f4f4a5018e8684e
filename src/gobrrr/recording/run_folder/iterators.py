"""Loaders as they were used: the iterators of one loader joined, with how every epoch began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.steps import usual_mode

Key = tuple[Any, ...]
_WANTED = (
    event_kinds.ITER, event_kinds.DATA_BEGIN, event_kinds.DATA_END, event_kinds.BOUNDARY, event_kinds.REST_BEGIN,
    event_kinds.REST_END, event_kinds.FORWARD,
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


@dataclass(eq=False)
class _Use:
    """Use of one loader, in ns by epoch: from iter() to the first request, the first wait, the rest of that step, the
    request that finds the epoch over. `unseen`: epochs that began while the hooks rested."""

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
    open: tuple[int, int] | None = None
    """The last batch may be theirs: forwards of others and of the training before it."""

    @property
    def num_batches(self) -> int:
        """Batches, those of rests as in the steps that were watched."""
        return self.batches + round(self.resting_steps * self.batches / max(1, self.watched_steps))

    def given(self, forwards: list[int]) -> None:
        """A batch was handed out after so many forwards, of others and of the training."""
        self.batches += 1
        self.open = forwards[0], forwards[1]

    def decide(self, forwards: list[int]) -> None:
        """The last batch was the training's, unless forwards of others alone came since: an evaluation. A teacher's
        come before the student's."""
        if self.open is not None:
            others, ours = forwards[0] > self.open[0], forwards[1] > self.open[1]
            self.since += ours or not others
        self.open = None

    def forget(self) -> None:
        """Drop the batches since: they belong to no step of the main loop, or to none that was seen."""
        self.since, self.open = 0, None


def _key(entry: dict[str, Any]) -> Key:
    key = entry.get("key")
    return tuple(str(part) for part in key) if isinstance(key, list) else ()


def _used(events: npt.NDArray[np.int64], key_of: dict[Any, Key], main: tuple[int, int] | None) -> dict[Key, _Use]:
    """Return the use of every loader."""
    used: dict[Key, _Use] = defaultdict(_Use)
    mode = usual_mode(events, main) if main and key_of else None
    num_steps = 0
    forwards = [0, 0]  # of others, and of the training
    since: set[_Use] = set()  # whose batches came since a step: there may be hundreds of loaders
    last = _Use()
    made = begun = resting = 0
    first: tuple[_Use, int] | None = None
    wanted = np.isin(events[:, 1], _WANTED if key_of else _WANTED[:-1])
    for t, kind, number, value in events[wanted].tolist():
        if kind == event_kinds.REST_BEGIN or kind == event_kinds.REST_END:
            resting, made, first = kind == event_kinds.REST_BEGIN, 0, None
            _forget(since)
        elif kind == event_kinds.FORWARD:
            forwards[value == mode] += 1
        elif kind == event_kinds.BOUNDARY:
            if first:
                first[0].steps.append(t - first[1])
            first = None
            last.resting_steps += resting
            last.watched_steps += not resting
            if (value, number) == main and not resting:
                if num_steps == 1:  # before the first there may have been steps that nothing told yet
                    for use in used.values():
                        use.of_steps = 0
                num_steps += 1
                for use in since:
                    use.decide(forwards)
                    use.of_steps += use.since
            if (value, number) == main or value in event_kinds.TRAINS:
                _forget(since)
        elif kind == event_kinds.ITER and resting:
            last.unseen += 1
        elif kind == event_kinds.ITER:
            made = t
        else:
            use = last = used[key_of.get(number, ())]
            if kind == event_kinds.DATA_BEGIN:
                use.decide(forwards)
                begun = t
                if made:
                    use.starts.append(t - made)
                continue
            if value:
                use.ends.append(t - begun)
            else:
                use.given(forwards)
                since.add(use)
                if made:
                    use.firsts.append(t - begun)
                    first = use, t
            made = 0
    for use in used.values():
        use.per_step = use.of_steps / max(1, num_steps - 1)
    return used


def _forget(since: set[_Use]) -> None:
    for use in since:
        use.forget()
    since.clear()
