"""Loaders that a program trains on, told by what it does: no name or argument of a loader says so."""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple


class Surroundings(NamedTuple):
    """Where a batch is drawn, or an optimizer steps."""

    thread: int
    modes: weakref.WeakKeyDictionary[Any, bool]
    """Whether the models that the program has called so far are in train() mode."""

    def are_like(self, others: Surroundings) -> bool:
        """Say whether thread and modes are the same, as far as both know a model: a first batch comes before the first
        call."""
        return self.thread == others.thread and all(others.modes.get(m, mode) == mode for m, mode in self.modes.items())


class Trains:
    """A loader trains once an optimizer has stepped after a batch of its own: drawn with gradients on, where the models
    were in the mode in which they are when it steps (Hugging Face evaluates in eval() mode and switches gradients off
    after the draw), and with no other loader drawn from since the step before, or nobody knows which one it was.

    A loader is known by its sampler, which its iterators of all epochs share."""

    def __init__(self) -> None:
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._drawn: weakref.WeakKeyDictionary[Any, Surroundings] = weakref.WeakKeyDictionary()
        self._trains: weakref.WeakKeyDictionary[Any, Surroundings] = weakref.WeakKeyDictionary()

    def meets(self, model: Any) -> None:
        """The program calls this module itself; a loss or a metric is in no mode that means anything."""
        if next(model.parameters(), None) is not None:
            self._models.add(model)

    def draws(self, sampler: Any) -> bool:
        """A batch was drawn now: whether it is one of a training."""
        import torch

        if not torch.is_grad_enabled() or not _is_weak(sampler):
            return False
        now = self._surroundings()
        self._drawn[sampler] = now
        known = self._trains.get(sampler)
        return known is not None and known.are_like(now)

    def steps(self) -> None:
        """An optimizer is about to step."""
        if not self._drawn:
            return
        drawn, now = list(self._drawn.items()), self._surroundings()
        self._drawn.clear()
        if len(drawn) == 1 and drawn[0][1].are_like(now):
            self._trains[drawn[0][0]] = now

    def _surroundings(self) -> Surroundings:
        modes = weakref.WeakKeyDictionary({model: bool(model.training) for model in self._models})
        return Surroundings(threading.get_ident(), modes)


def _is_weak(sampler: Any) -> bool:
    """Whether it can be known without being kept: a list of batches cannot."""
    return type(sampler).__weakrefoffset__ != 0 and type(sampler).__hash__ is not None
