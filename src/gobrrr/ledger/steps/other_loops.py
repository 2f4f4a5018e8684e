"""Which loops ran beside the main one, and how much of the watched time was theirs.

A loop's own steps say too little of it: the first forwards of an evaluation are waited for in vain before they count as
steps, and what lies between the last of them and the training's next batch ends in no step of either. Of ten forwards
after every tenth update six were seen (40 % for 50). So what lies between two steps of the main loop is cut where the
training goes on.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.ledger.model.ledger import OtherLoop
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.steps import LoopSteps, usual_mode
from gobrrr.recording.run_folder.run import Recording
from gobrrr.spans import Ints

HIDES = (event_kinds.WINDOW_BEGIN, event_kinds.REST_BEGIN)
CUTS = (event_kinds.BOUNDARY, *HIDES, event_kinds.WINDOW_END, event_kinds.REST_END)
GOES_ON = (event_kinds.ITER, event_kinds.DATA_BEGIN, event_kinds.FORWARD)
Key = tuple[int, int]


class Stretch(NamedTuple):
    """Stretch between two steps of the main loop, with steps of others in it: theirs is [begin, end), what is left
    until `until` is the main loop's. `boundaries`: how many each of the others has in it; `after`: ns from when the
    last of these steps should be over, by the longest before it, and its loader has said that it is; `before`: ns to
    where they begin, with a loader, its first batch, or a forward and the time that such a step takes for its input."""

    begin: int
    end: int
    until: int
    boundaries: Counter[Key]
    after: int
    before: int = 0


def other_loops(recording: Recording) -> tuple[OtherLoop, ...]:
    """Loops beside the main one, with their share of the time that all loops took while all were seen: of what lies
    beside a rest's steps nobody knows."""
    if not recording.loops:
        return ()
    main, *others = recording.loops
    trains = main.kind in event_kinds.TRAINS  # else forwards begin steps, and nothing says where it goes on
    stretches = list(_stretches(recording.events, main)) if trains else []
    own = _seen(main) + sum(each.until - each.end for each in stretches)
    spent = [_spent(stretches, loop.key) if trains else float(_seen(loop)) for loop in others]
    total = (own + sum(spent)) or 1
    beside = sum(not step.rests for step in main.steps)
    between = list(_between(stretches, main))
    after = [each._replace(end=each.begin + each.after) for each in between]
    before = [each._replace(end=each.begin + each.before) for each in between]
    times = [sum(loop.key in each.boundaries for each in between) for loop in others]
    return tuple(
        OtherLoop(
            f"{event_kinds.loop_name(loop.kind)} of {_what(recording, loop)}", ns / total,
            _count(recording.events, stretches, loop), _waits(loop), beside, trains and not num, num,
            _spent(between, loop.key) / total, _where(recording, loop),
            _spent(after, loop.key) / total, _spent(before, loop.key) / total,
        )
        for loop, ns, num in zip(others, spent, times, strict=True)
    )  # fmt: skip


def own_share(loops: Iterable[OtherLoop]) -> float:
    """Return the share of the watched time that these loops leave to the main one."""
    return 1 - sum(loop.share for loop in loops)


def _stretches(events: Ints, main: LoopSteps) -> Iterator[Stretch]:
    """All that are seen whole; of the first and the last what lies between their boundaries."""
    goes_on = _goes_on(events, main.key)
    usual = int(np.median([step.wall for step in main.steps] or [0]))
    over = np.sort(events[(events[:, 1] == event_kinds.DATA_END) & (events[:, 3] == 1), 0])
    loaders, forwards = (np.sort(events[events[:, 1] == kind, 0]) for kind in (event_kinds.ITER, event_kinds.FORWARD))
    asked = _asked(events)
    first, begin, last, longest, hidden, between = 0, 0, 0, 0, False, Counter[Key]()
    for t, kind, number, value in events[np.isin(events[:, 1], CUTS)].tolist():
        if kind == event_kinds.BOUNDARY and (value, number) != main.key:
            if not hidden:
                longest = max(longest, t - last) if between else 0
                first, begin, last = first if between else t, begin or t, t
                between[(value, number)] += 1
            continue
        if between:
            whole = kind == event_kinds.BOUNDARY
            end = _first(goes_on, last, t) or max(begin, t - usual) if whole else last
            left = max(last + longest, _last(over, last, end))
            after = min(max(0, end - left), end - begin) if longest else 0
            called = _first(forwards, begin, first)
            starts = _first(loaders, begin - 1, first), _last(asked, begin - 1, called), max(0, called - longest)
            before = max(0, min(*filter(None, starts), end - after) - begin) if longest and any(starts) else 0
            yield Stretch(begin, end, t if whole else last, between, after, before)
        hidden = kind in HIDES or (hidden and kind == event_kinds.BOUNDARY)
        begin, between = t, Counter()
    if between:
        yield Stretch(begin, last, last, between, 0)


def _asked(events: Ints) -> Ints:
    """When batches were asked for that came, in order: the end of an epoch is asked for as well."""
    begins = np.sort(events[events[:, 1] == event_kinds.DATA_BEGIN, 0])
    ends = events[events[:, 1] == event_kinds.DATA_END]
    over = ends[np.argsort(ends[:, 0], kind="stable"), 3][: len(begins)]
    return np.asarray(begins[: len(over)][over != 1], np.int64)


def _between(stretches: list[Stretch], main: LoopSteps) -> Iterator[Stretch]:
    """Yield stretches after the first step of the main loop and before its last."""
    first, last = main.steps[0], main.steps[-1]
    return (each for each in stretches if first.end <= each.begin and each.end <= last.end)


def _goes_on(events: Ints, main: Key) -> Ints:
    """When the training goes on, in order: at each of its forwards, or where its batch was asked for before, or its
    loader begun, whose workers start then."""
    training = usual_mode(events, main)
    found, asked, begun = [], 0, False
    for t, kind, value in events[np.isin(events[:, 1], GOES_ON)][:, [0, 1, 3]].tolist():
        if kind == event_kinds.FORWARD:
            if value == training:
                found.append(asked or t)
            asked, begun = 0, False
        elif not begun:
            asked, begun = t, kind == event_kinds.ITER
    return np.array(found, np.int64)


def _first(times: npt.NDArray[np.int64], after: int, before: int) -> int:
    """The first of them in (after, before); 0 where none is."""
    at = int(np.searchsorted(times, after, "right"))
    return int(times[at]) if at < len(times) and times[at] < before else 0


def _last(times: Ints, after: int, before: int) -> int:
    """The last of them in (after, before]; 0 where none is."""
    at = int(np.searchsorted(times, before, "right")) - 1
    return int(times[at]) if at >= 0 and times[at] > after else 0


def _seen(loop: LoopSteps) -> int:
    """ns of a loop's own steps outside rests and windows, in which the others are not counted either."""
    return sum(step.wall for step in loop.steps if not (step.rests or step.window))


def _spent(stretches: list[Stretch], key: Key) -> float:
    """ns of what lies between that are this loop's, by how many boundaries each has in it."""
    return sum((each.end - each.begin) * each.boundaries[key] / each.boundaries.total() for each in stretches)


def _count(events: Ints, stretches: list[Stretch], loop: LoopSteps) -> int:
    """Its steps; forwards are counted all, whether or not they ended a step."""
    if loop.kind != event_kinds.FORWARDS:
        return len(loop.steps)
    times = np.sort(events[(events[:, 1] == event_kinds.FORWARD) & (events[:, 2] == loop.number), 0])
    called = 0
    for each in stretches:
        if each.boundaries[loop.key]:
            end = each.end + (each.end == each.until)  # one that began at the end of all is its own
            called += int(np.searchsorted(times, end) - np.searchsorted(times, each.begin))
    return max(called, len(loop.steps))


def _waits(loop: LoopSteps) -> float:
    """Return the share of its steps' time in which it waits for its loader."""
    seen = [step for step in loop.steps if not step.rests]
    return sum(step.wait for step in seen) / (sum(step.wall for step in seen) or 1)


def _what(recording: Recording, loop: LoopSteps) -> str:
    table = event_kinds.LOOPS[loop.kind].facts if loop.kind in event_kinds.LOOPS else ""
    entry = next(entries(recording, table, loop.number), None)
    return f"#{loop.number}" if entry is None else str(entry.get("kind") or entry.get("dataset") or loop.number)


def _where(recording: Recording, loop: LoopSteps) -> Span | None:
    if loop.kind != event_kinds.FORWARDS:
        return None
    for entry in entries(recording, "forward_spans", loop.number):
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert(entry.get("span"), Span | None)
    return None


def entries(recording: Recording, table: str, number: int) -> Iterator[dict[str, Any]]:
    """Yield entries of a number in a table of the facts of all moments; the file may hold anything."""
    for facts in recording.raw_facts:
        entries = facts.get(table)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("id") == number:
                yield entry
