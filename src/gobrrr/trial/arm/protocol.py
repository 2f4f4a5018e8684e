"""Messages between referee and arm, and who may say what when.

JSON lines through two FIFOs in the arm's folder. Arm to referee: `ready` (seconds since its start), `block` (steps, ns
of each, ns in all), `aside` (steps of another loop), `once` (ns of a step that went into what no later one does),
`applied` and `declined` (remedy, detail, the user's line that led there), `failed` (error), `ended`. Referee to arm:
`run` (steps), `say`, `end`. Both sides are state machines without clocks, pipes or processes:

                 arm                                   referee
    STARTING     runs to its loop's first step         waits for `ready`
    HELD         stands still, waits for a grant       decides
    RUNNING      makes the steps of its grant          waits for `block`
    OVER

An arm that stands still answers one thing beside a grant: `say`, by telling once more what it told last. A referee that
has waited for long asks it. So a message that was lost costs time, and neither waits for the other: an arm that says
nothing then is in the program's own code. Grants and what they bring are numbered; an older one's is passed over.
"""

from __future__ import annotations

import json
import os
import select
import time
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from gobrrr.system.descriptors import Held

ASK, TOLD, OBSERVED, STATES, STDOUT = "ask", "told", "observation", "states", "stdout"
"""Files of an arm's folder: two FIFOs, what the guard saw, the states that it kept, what the program printed."""
REPLAYED = "replayed batches"
"""Name under which an arm says that it replays batches (replaying.py). No remedy can have it: it is two words."""
Message = dict[str, Any]


class Block(NamedTuple):
    """Work of an arm between a grant and its last boundary, by its own clock."""

    ns: int
    walls: tuple[int, ...]
    graphs: tuple[int, int] | None = None
    """Graphs and graph breaks of torch.compile up to its end."""
    peak_bytes: int | None = None
    """Most that its steps held, where that is the objective."""
    samples: int | None = None
    """Samples that loaders gave its steps, where those are counted; none where there is no loader."""
    whole_ns: int | None = None
    """All from the grant on by the arm's clock, what lies between steps in it."""
    referee_ns: int = 0
    """The same by the referee's clock, with the messages' way."""
    rows: int = 0
    """Rows that models were given from the grant on, in a program that learns nothing; 0 elsewhere."""
    joules: float | None = None
    """Energy from its grant to its end, where that is counted."""

    def joined(self, more: Block) -> Block:
        """Return both as one."""
        return Block(
            self.ns + more.ns, self.walls + more.walls, more.graphs,
            max(self.peak_bytes or 0, more.peak_bytes or 0) or None,
            (self.samples or 0) + (more.samples or 0) if more.samples is not None else None,
            (self.whole_ns or 0) + (more.whole_ns or 0), self.referee_ns + more.referee_ns, self.rows + more.rows,
        )  # fmt: skip


def make(folder: Path) -> None:
    """The two FIFOs of an arm. Raises OSError."""
    for name in (ASK, TOLD):
        os.mkfifo(folder / name)


def open_fifo(file: Path) -> int:
    """Open for both directions, so that neither side waits for the other and no end of file comes in between."""
    return os.open(file, os.O_RDWR | os.O_CLOEXEC)


class Line:
    """One FIFO: whole lines in, whole lines out."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._held = Held(open_fifo(file))
        self._read = b""

    def send(self, kind: str, **fields: Any) -> None:
        """Write one message; blocks while the other side is far behind."""
        data = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        while data:
            data = data[os.write(self._fd(), data) :]

    def receive(self, seconds: float | None = None) -> Message | None:
        """The next message; None where none came in time. A line that is no message is passed over."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            line, end, rest = self._read.partition(b"\n")
            if end:
                self._read = rest
                message = _decoded(line)
                if message is not None:
                    return message
                continue
            left = None if until is None else max(0.0, until - time.monotonic())
            poll = select.poll()  # select() takes no high descriptors
            poll.register(self._fd(), select.POLLIN)
            found = poll.poll(None if left is None else 1000 * left)
            if not any(event & select.POLLIN for _, event in found):  # nor where another thread has closed it meanwhile
                return None
            self._read += os.read(self._fd(), 1 << 16)

    def close(self) -> None:
        """Close it; safe to call twice."""
        self._held.close()

    def _fd(self) -> int:
        """The program in whose process it lies may have closed it: then it is opened anew."""
        if self._held.fd < 0:
            self._held = Held(open_fifo(self._file))
        return self._held.fd


def _decoded(line: bytes) -> Message | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and isinstance(message.get("kind"), str) else None


Loop = tuple[int, int]
TELL_NS = 1_000_000_000
"""Least ns between two signs of life of another loop than the one that is measured."""


class Phase(Enum):
    """Where one side is."""

    STARTING, HELD, RUNNING, OVER = range(4)


class ArmSide:
    """In the program: fed with its steps and what the referee says, it says what to tell. After `ready` and `block` it
    is HELD: the program must stand still. One loop is measured from the first moment to the last: the one that is
    named, else the first that makes a step; steps of others are signs of life."""

    def __init__(self, loop: Loop | None) -> None:
        self.phase, self.loop = Phase.STARTING, loop
        self.walls: list[int] = []
        """Wall ns of each step of this grant in which no other loop ended one: those that `gobrrr run` measures."""
        self.aside_ns = 0
        """Ns of this grant around steps of other loops (an evaluation), or for what comes once; in no step of it."""
        self._aside = 0
        self._told_at = self._since = 0
        self._number = self._left = 0
        self._interrupted = False
        self._last: Message | None = None

    def boundary(self, loop: Loop, now: int) -> Message | None:
        """A step of some loop has ended at `now`: what to tell."""
        if self.phase not in (Phase.STARTING, Phase.RUNNING):
            return None
        if self.loop is None:
            self.loop = loop
        if loop != self.loop:
            return self._other(loop, now)
        if self.phase is Phase.STARTING:
            return self._hold("ready")
        since, self._since = self._since, now
        if self._interrupted:
            self._interrupted, self.aside_ns = False, self.aside_ns + now - since
            return None
        self.walls.append(now - since)
        self._left -= 1
        return self._hold("block") if self._left <= 0 else None

    def _other(self, loop: Loop, now: int) -> Message | None:
        self._interrupted, self._aside = True, self._aside + 1
        if now - self._told_at < TELL_NS:
            return None
        self._told_at = now
        return {"kind": "aside", "loop": loop, "steps": self._aside}

    def _hold(self, kind: str) -> Message:
        self.phase = Phase.HELD
        self._last = {"kind": kind, "number": self._number}
        return self._last

    def told(self, message: Message, now: int) -> Message | None:
        """Take the referee's message if the arm stands still; return what to tell once more, where it asks for that.
        Look at `phase` then."""
        kind = message.get("kind")
        if self.phase is not Phase.HELD:
            return None
        if kind == "say":
            return self._last
        if kind == "run" and int(message["number"]) > self._number:
            self.phase, self._number, self._left = Phase.RUNNING, int(message["number"]), int(message["steps"])
            self.walls, self.aside_ns, self._aside, self._interrupted, self._since = [], 0, 0, False, now
        elif kind == "end":
            self.phase = Phase.OVER
        return None

    def put_aside(self, ns: int) -> None:
        """So long something was done in this step that is no part of it."""
        self.aside_ns, self._since = self.aside_ns + ns, self._since + ns

    def over(self) -> None:
        """The program is over."""
        self.phase = Phase.OVER


class RefereeSide:
    """One arm as the referee sees it: what it may be told now, and what its messages mean."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self._number = 0
        self.aside: tuple[int, int] | None = None
        """Kind of another loop that the arm is in, and its steps since the last message of its own."""

    def grant(self, steps: int) -> Message:
        """The message that lets it go; it must be HELD."""
        assert self.phase is Phase.HELD, f"a grant to an arm that is {self.phase.name}"
        self.phase, self._number, self.aside = Phase.RUNNING, self._number + 1, None
        return {"kind": "run", "steps": steps, "number": self._number}

    @property
    def waits(self) -> bool:
        """Whether it waits for the arm."""
        return self.phase in (Phase.STARTING, Phase.RUNNING)

    def told(self, message: Message) -> bool:
        """Say whether the arm's message is what was waited for. Anything late or out of turn is passed over."""
        kind = message["kind"]
        if kind == "aside":
            self.aside = int(message["loop"][0]), int(message["steps"])
        elif kind == "ended":
            self.phase = Phase.OVER
        elif kind == ("ready" if self.phase is Phase.STARTING else "block") and message.get("number") == self._number:
            if self.waits:
                self.phase = Phase.HELD
                return True
        return False
