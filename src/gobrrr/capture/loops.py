"""Which events end a step: loops are found from optimizer updates, top-level forwards or explicit marks."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

UPDATE, FORWARD, EXPLICIT, DATA = 1, 2, 3, 4
# Forwards in training mode with gradients may be micro-steps of an update still to come: so many must pass without
# one before they count as steps themselves, or twice as many as the longest accumulation seen. Forwards without
# gradients cannot be followed by an update.
PATIENCE_TRAINING, PATIENCE_INFERENCE, PATIENCE_DATA = 32, 3, 64
# What "lately" is: a loop that makes one step in more events than these is not found. Updates change in kind between
# phases of a training, and must not wait long for it; a decoder makes hundreds of forwards per call of its encoder.
RECENT_UPDATES, RECENT_FORWARDS = 64, 512


# Who has not come for so many times its usual gap takes part no more: another phase of the program has begun.
STALE = 4


class Turns:
    """Counts who came how often in the last `size` turns, to find the one that comes once per round."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._turns: deque[int] = deque()
        self.counts: dict[int, int] = {}
        self._first_seen: dict[int, int] = {}
        self._last_seen: dict[int, int] = {}
        self._gap: dict[int, int] = {}  # turns from one of its turns to the next, the longest of late
        self._now = 0

    def add(self, who: int) -> None:
        """`who` has its turn."""
        if self.counts.get(who) == self._size and self._gap[who] == 1:
            return  # nobody else for so long: one turn more would move all numbers alike
        self._first_seen.setdefault(who, len(self._first_seen))
        self._turns.append(who)
        self._now += 1
        gap = self._now - self._last_seen.get(who, self._now - self._size)
        self._gap[who] = max(gap, self._gap.get(who, 0) // 2)
        self._last_seen[who] = self._now
        self.counts[who] = self.counts.get(who, 0) + 1
        if len(self._turns) > self._size:
            gone = self._turns.popleft()
            self.counts[gone] -= 1
            if not self.counts[gone]:
                del self.counts[gone]

    def clear(self) -> None:
        """Forget all turns, not who was seen first."""
        self._turns.clear()
        self.counts.clear()

    def rarest(self, slack: int) -> list[int]:
        """Those that came least often, in the order in which they were first seen; `slack` turns more are equal."""
        if len(self.counts) == 1:
            return list(self.counts)
        taking_part = {
            who: n for who, n in self.counts.items() if self._now - self._last_seen[who] <= STALE * self._gap[who]
        }
        least = min(taking_part.values()) + slack
        return sorted((who for who, n in taking_part.items() if n <= least), key=self._first_seen.__getitem__)

    @property
    def full(self) -> bool:
        """Old turns are being forgotten: a round that lies across the edge counts one less for some."""
        return len(self._turns) == self._size


class Loops:
    """Says for every event whether it ends a step, and of which loop. A loop is a pair (kind, id)."""

    def __init__(self) -> None:
        self._updates = Turns(RECENT_UPDATES)
        self._forwards = Turns(RECENT_FORWARDS)
        self._micro_steps: dict[int, int] = {}
        self._longest = 0
        self._batches = 0
        self._leader = self._data_loop = -1
        self._others: set[int] = set()
        self._explicit = False

    def update(self, optimizer: int) -> tuple[int, int] | None:
        """An optimizer has stepped: the loop whose step this ends, or None (one of several optimizers of a step)."""
        self._updates.add(optimizer)
        for forwards in self._micro_steps.values():
            self._longest = max(self._longest, forwards)
        self._micro_steps.clear()
        self._forwards.clear()
        self._batches = 0
        if self._explicit or optimizer != self._anchor():
            return None
        return (UPDATE, optimizer)

    @property
    def optimizers(self) -> Collection[int]:
        """Those that stepped lately."""
        return self._updates.counts

    def forward(self, module: int, flags: int) -> tuple[int, int] | None:
        """A top-level forward begins: it ends a step only in a loop without updates."""
        self._forwards.add(module)
        self._batches = 0
        waited, patience = self._forwards.counts[module], PATIENCE_INFERENCE
        if flags == 3:
            waited = self._micro_steps[module] = self._micro_steps.get(module, 0) + 1
            patience = max(PATIENCE_TRAINING, 2 * self._longest)
        if self._explicit or waited <= patience or module != self._main_module():
            return None
        return (FORWARD, module)

    def batch(self, loader: int) -> tuple[int, int] | None:
        """A batch was handed out: it ends a step only where neither updates nor forwards come (functional code)."""
        self._batches += 1
        if self._batches == 1:
            self._data_loop = loader
        if not self._leads(loader) or self._explicit or self._batches <= PATIENCE_DATA:
            return None
        return (DATA, self._data_loop)

    def explicit(self) -> tuple[int, int]:
        """gobrrr.steps() says so: from now on nothing else does."""
        self._explicit = True
        return (EXPLICIT, 0)

    def _anchor(self) -> int:
        """The optimizer that steps least often of those seen lately; of equals, the one that joined last.

        A GAN that updates D five times per G makes one step per G; D, G, D, G ends its step at G.
        """
        return self._updates.rarest(int(self._updates.full))[-1]

    def _main_module(self) -> int:
        """Of several modules called in turn, the one called least often, the first seen of equals.

        A step begins with its call, when it is one call ahead of the others.
        """
        return self._forwards.rarest(1)[0]

    def _leads(self, loader: int) -> bool:
        """Of loaders that are read in turn one leads. Every epoch has an iterator, and so a number, of its own: one
        that gives two batches while the leader gives none has taken its place."""
        if loader == self._leader or self._leader < 0 or loader in self._others:
            self._leader = loader
            self._others.clear()
            return True
        self._others.add(loader)
        return False
