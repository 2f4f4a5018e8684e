"""Which events end a step: loops are found from updates, backward passes, forwards, replays of graphs, or marks."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from gobrrr.recording.model.event_kinds import BACKWARDS, BATCHES, EXPLICIT, FORWARDS, REPLAYS, UPDATES

# Forwards in training mode with gradients may be micro-steps of an update still to come: so many must pass without
# one before they count as steps themselves, or twice as many as the longest accumulation seen; backward passes too,
# where the program has made an optimizer at all, and replays of graphs. Forwards without gradients cannot be followed
# by an update.
PATIENCE_TRAINING, PATIENCE_INFERENCE, PATIENCE_DATA = 32, 3, 64
# What "lately" is: a loop that makes one step in more events than these is not found. Updates change in kind between
# phases of a training, and must not wait long for it; a decoder makes hundreds of forwards per call of its encoder.
RECENT_UPDATES, RECENT_FORWARDS = 64, 512
LONGEST = 1024
"""Turns that are looked at where a round is longer than half of those: one optimizer for each of 100 weights."""
RUNS = 3
"""Training steps in a row that each had inference in them (rollouts, a teacher, an evaluation): it is part of them."""


# Who has not come for so many times its usual gap takes part no more: another phase of the program has begun.
STALE = 4


def read(word: str | None) -> tuple[int, int] | None:
    """The loop of a word (recording.steps.LoopSteps.word); None where it names none."""
    kind, _, number = (word or "").partition(":")
    return (int(kind), int(number)) if kind.isdecimal() and number.removeprefix("-").isdecimal() else None


class Loop:
    """State of one loop while the program runs."""

    def __init__(self) -> None:
        self.walls: list[int] = []
        self.last = self.total = self.look_at = self.done = self.settle = self.attempts = self.steps = 0


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
        if len(self.counts) == len(self._turns):  # nobody has come again: the first round is not over
            self._size = max(self._size, min(2 * len(self._turns), LONGEST))
        if len(self._turns) > self._size:
            gone = self._turns.popleft()
            self.counts[gone] -= 1
            if not self.counts[gone]:
                del self.counts[gone]

    def clear(self) -> None:
        """Forget all turns, not who was seen first."""
        self._turns.clear()
        self.counts.clear()

    def rarest(self, slack: int, wholes: Mapping[int, Collection[int]] = MappingProxyType({})) -> list[int]:
        """Return the ones that came least often, in the order in which they were first seen; `slack` turns more are
        equal. `wholes`: those of which one is a part; where such a one takes part too, its part does not count."""
        if len(self.counts) == 1:
            return list(self.counts)
        taking_part = {
            who: n for who, n in self.counts.items() if self._now - self._last_seen[who] <= STALE * self._gap[who]
        }
        if wholes:
            taking_part = {
                who: n for who, n in taking_part.items() if taking_part.keys().isdisjoint(wholes.get(who, ()))
            }
        least = min(taking_part.values()) + slack
        return sorted((who for who, n in taking_part.items() if n <= least), key=self._first_seen.__getitem__)

    @property
    def full(self) -> bool:
        """Old turns are being forgotten: a round that lies across the edge counts one less for some."""
        return len(self._turns) == self._size


class Round:
    """Graphs that the same lines replay. In a fixed order, as for the layers of a model, all of them are one round;
    else each replay is one of its own, as with a graph for every shape of the input."""

    def __init__(self) -> None:
        self._order: list[int] = []
        self._at = -1
        self._whole = False  # the first has come again
        self._fixed = True

    def begins(self, graph: int) -> bool:
        """`graph` has its turn: whether a round begins with it."""
        self._at += 1
        if self._order[:1] == [graph]:
            self._whole, self._at = True, 0
        elif self._fixed and self._order[self._at : self._at + 1] != [graph]:
            self._unexpected(graph)
        return self._at == 0 or not self._fixed

    def _unexpected(self, graph: int) -> None:
        """Note a graph that did not follow the last one before: a new one, or out of order."""
        if self._at != len(self._order) or graph in self._order or self._at == LONGEST:
            self._fixed = False
        elif self._whole:  # behind whole rounds: another set of graphs, captured anew say
            self._order, self._at, self._whole = [graph], 0, False
        else:
            self._order.append(graph)


class Loops:
    """Says for every event whether it ends a step, and of which loop. A loop is a pair (kind, id)."""

    def __init__(self, optimizer_made: Callable[[], bool] = lambda: True) -> None:
        """`optimizer_made`: whether the program has made an optimizer, which may update yet."""
        self._optimizer_made = optimizer_made
        self._updates, self._passes = Turns(RECENT_UPDATES), Turns(RECENT_UPDATES)
        self._prepared: set[int] = set()  # modules called before the first backward pass was over
        self._forwards = Turns(RECENT_FORWARDS)
        self._wholes: dict[int, set[int]] = defaultdict(set)
        self._bare: set[int] = set()
        self._computes = False  # a module with parameters has been called
        self._micro_steps: dict[int, int] = {}
        self._longest = 0
        self._replays = Turns(RECENT_UPDATES)
        self._rounds: dict[int, Round] = defaultdict(Round)
        self._replayed = 0  # graphs since anything else was seen
        self._longest_row = self._most_replayed = 0  # the most of those since the last update, and between two of them
        self._passed = self._most_passed = 0  # backward passes since the last update, and between two of them
        self._trained = -1  # the first module of the backward pass to come; the pass itself, until its step ends
        self._pending: int | None = None
        self._is_update = self._differentiates = False
        self._inferred: dict[int, int] = {}
        self._runs: deque[int] = deque([0] * RUNS, RUNS)
        self._batches = 0
        self._leader = self._data_loop = -1
        self._others: set[int] = set()
        self._explicit = False

    def update(self, optimizer: int) -> tuple[int, int] | None:
        """An optimizer has stepped: the loop whose step this ends, or None (one of several optimizers of a step)."""
        differentiated = self._passed > 0 or self._pending is not None
        self._differentiates |= differentiated
        joins = optimizer not in self.optimizers
        self._updates.add(optimizer)
        self._accumulated()
        self._most_passed = max(self._most_passed, self._passed)
        self._passed, self._pending, self._trained, self._is_update = 0, None, -1, False
        if optimizer != self._anchor() or (joins and self._differentiates and not differentiated):
            return None  # one that is new right behind another's update has a part in the same step
        self._trained_once()
        return None if self._explicit else (UPDATES, optimizer)

    @property
    def optimizers(self) -> Collection[int]:
        """Return the optimizers that stepped lately."""
        return self._updates.counts

    def updated_inside(self) -> None:
        """An optimizer has stepped inside a backward pass, one for every weight say: the pass is the step, unless one
        steps outside of them too."""
        self._is_update = not self._updates.counts

    def backward(self) -> tuple[int, int] | None:
        """A backward pass begins: it ends the step of the one before it, if nothing else has."""
        ended = self._next()
        self._accumulated()
        self._pending = self._trained
        return ended

    def wait(self) -> tuple[int, int] | None:
        """A batch is asked for: the step of a backward pass ends before it."""
        return self._next()

    def forward(self, module: int, flags: int) -> tuple[int, int] | None:
        """A top-level forward begins: it ends the step of a backward pass, or its own in a loop that does not train."""
        ended = self._next()
        self._batches = 0
        if not self._counts(module):
            return ended
        self._end_row()
        self._forwards.add(module)
        if flags == 3:
            if self._trained < 0:
                self._trained = module
            if not self._passes.counts:
                self._prepared.add(module)
            waited = self._micro_steps[module] = self._micro_steps.get(module, 0) + 1
            patience = max(PATIENCE_TRAINING, 2 * self._longest)
        else:
            waited = self._inferred[module] = self._inferred.get(module, 0) + 1
            patience = max(PATIENCE_INFERENCE, 2 * min(self._runs))
        if ended or self._explicit or waited <= patience or module != self._main_module():
            return ended
        return (FORWARDS, module)

    def belongs(self, part: int, whole: int) -> None:
        """A module lies inside another: generate() calls the encoder of a model by itself, and then the model for every
        token, which is the step."""
        self._wholes[part].add(whole)

    def bare(self, module: int) -> None:
        """A module has no parameters: a transform of pictures or a loss, and no step where one that has some is called.
        In training mode by default, it was waited for as if an update might follow."""
        self._bare.add(module)

    def _counts(self, module: int) -> bool:
        if module in self._bare:
            return not self._computes
        if not self._computes:
            self._computes = True
            if self._bare:  # what only prepared its input came first
                self._forwards.clear()
                self._micro_steps.clear()
                self._inferred.clear()
        return True

    def batch(self, loader: int) -> tuple[int, int] | None:
        """A batch was handed out: it ends a step only where nothing else does (code that works without modules)."""
        self._batches += 1
        if self._batches == 1:
            self._data_loop = loader
        if not self._leads(loader) or self._explicit or self._batches <= PATIENCE_DATA:
            return None
        return (BATCHES, self._data_loop)

    def replay(self, place: int, graph: int = 0) -> tuple[int, int] | None:
        """A CUDA graph is replayed at top level, `graph` of those that one place in the program replays: it begins a
        step where nothing else is seen, for it holds a whole training step, say, or the first part of one. Of places in
        turn, the one that comes least often does."""
        self._batches = 0
        self._replayed += 1
        if not self._rounds[place].begins(graph):
            return None
        self._replays.add(place)
        if self._explicit or self._replayed <= max(PATIENCE_INFERENCE, min(2 * self._most_replayed, RECENT_FORWARDS)):
            return None
        if self._replayed <= PATIENCE_TRAINING and self._optimizer_made():
            return None
        if place != self._replays.rarest(1)[0]:
            return None
        return (REPLAYS, place)

    def explicit(self) -> tuple[int, int]:
        """gobrrr.steps() says so: from now on nothing else does."""
        self._explicit = True
        return (EXPLICIT, 0)

    def _accumulated(self) -> None:
        """The forwards so far belong to a step that trains."""
        self._longest = max(self._longest, *self._micro_steps.values(), 0)
        self._micro_steps.clear()
        self._forwards.clear()
        self._end_row()
        self._most_replayed = max(self._most_replayed, self._longest_row)
        self._batches = self._longest_row = 0

    def _end_row(self) -> None:
        """Something else than a replay is seen."""
        self._longest_row = max(self._longest_row, self._replayed)
        self._replayed = 0

    def _next(self) -> tuple[int, int] | None:
        """Something begins behind a backward pass. A step without an optimizer ends there; with one it may be a
        micro-step."""
        if self._pending is None:
            return None
        module, self._pending, self._trained = self._pending, None, -1
        self._passed += 1
        self._has_turn(module)
        updated, self._is_update = self._is_update, False
        patient = not updated and self._passed <= max(PATIENCE_TRAINING, 2 * self._most_passed)
        if self._explicit or (patient and self._optimizer_made()) or module != self._passes.rarest(1)[0]:
            return None
        if updated:
            self._most_passed, self._passed = max(self._most_passed, self._passed), 0
        self._trained_once()
        return (BACKWARDS, module)

    def _has_turn(self, module: int) -> None:
        """A backward pass of this module is over. What is called before the first one may only find out shapes, or
        build what trains: whose pass that one was the second tells."""
        if self._passes.counts:
            if module in self._prepared:
                self._passes.clear()
            self._prepared.clear()
        self._passes.add(module)

    def _trained_once(self) -> None:
        """A training step is over."""
        self._runs.append(max(self._inferred.values(), default=0))
        self._inferred.clear()

    def _anchor(self) -> int:
        """The optimizer that steps least often of those seen lately; of equals, the one that joined last.

        A GAN that updates D five times per G makes one step per G; D, G, D, G ends its step at G.
        """
        return self._updates.rarest(int(self._updates.full))[-1]

    def _main_module(self) -> int:
        """Return the module called least often of several called in turn, the first seen of equals; none that is a
        part.

        A step begins with its call, when it is one call ahead of the others.
        """
        return self._forwards.rarest(1, self._wholes)[0]

    def _leads(self, loader: int) -> bool:
        """Say whether this loader leads those that are read in turn. Every epoch has an iterator, and so a number, of
        its own: one that gives two batches while the leader gives none has taken its place."""
        if loader == self._leader or self._leader < 0 or loader in self._others:
            self._leader = loader
            self._others.clear()
            return True
        self._others.add(loader)
        return False
