"""Rules of who may do what when, between a referee and an arm: two state machines without clocks, pipes or processes.

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

from enum import Enum
from typing import Any

Loop = tuple[int, int]
Message = dict[str, Any]
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
