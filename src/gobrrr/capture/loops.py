"""Which events end a step: loops are found from optimizer updates, top-level forwards or explicit marks."""

from __future__ import annotations

from collections import Counter, deque

UPDATE, FORWARD, EXPLICIT, DATA = 1, 2, 3, 4
# Forwards in training mode with gradients may be micro-steps of an update still to come: so many must pass without
# one before they count as steps themselves. Forwards without gradients cannot be followed by an update.
PATIENCE_TRAINING, PATIENCE_INFERENCE, PATIENCE_DATA = 32, 3, 64
RECENT = 64


class Loops:
    """Says for every event whether it ends a step, and of which loop. A loop is a pair (kind, id)."""

    def __init__(self) -> None:
        self._updates: deque[int] = deque(maxlen=RECENT)
        self._first_seen: dict[int, int] = {}
        self._forwards: Counter[int] = Counter()
        self._batches = 0
        self._explicit = False

    def update(self, optimizer: int) -> tuple[int, int] | None:
        """An optimizer has stepped: the loop whose step this ends, or None (one of several optimizers of a step)."""
        self._updates.append(optimizer)
        self._first_seen.setdefault(optimizer, len(self._first_seen))
        self._forwards.clear()
        self._batches = 0
        if self._explicit or optimizer != self._anchor():
            return None
        return (UPDATE, optimizer)

    def forward(self, module: int, flags: int) -> tuple[int, int] | None:
        """A top-level forward begins: it ends a step only in a loop without updates."""
        self._forwards[module] += 1
        self._batches = 0
        patience = PATIENCE_TRAINING if flags == 3 else PATIENCE_INFERENCE
        if self._explicit or self._forwards[module] <= patience or module != self._main_module():
            return None
        return (FORWARD, module)

    def batch(self, loader: int) -> tuple[int, int] | None:
        """A batch was handed out: it ends a step only where neither updates nor forwards come (functional code)."""
        self._batches += 1
        if self._explicit or self._batches <= PATIENCE_DATA:
            return None
        return (DATA, loader)

    def explicit(self) -> tuple[int, int]:
        """gobrrr.steps() says so: from now on nothing else does."""
        self._explicit = True
        return (EXPLICIT, 0)

    def _anchor(self) -> int:
        """The optimizer that steps least often of those seen lately; of equals, the one that joined last.

        A GAN that updates D five times per G makes one step per G; D, G, D, G ends its step at G.
        """
        if len(self._first_seen) == 1:
            return next(iter(self._first_seen))
        counts = Counter(self._updates)
        return min(counts, key=lambda o: (counts[o], -self._first_seen[o]))

    def _main_module(self) -> int:
        """Of several modules called in turn, the one called least often, the first seen of equals."""
        return min(self._forwards, key=lambda m: self._forwards[m])
