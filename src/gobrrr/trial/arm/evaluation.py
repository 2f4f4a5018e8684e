"""Inside a whole run: the user's own function over what models are evaluated on, what loggers are given, and whether
the evaluation trains. Nothing of it is there where anything is timed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import math
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.capture.hooks.awaited import Awaited
from gobrrr.capture.hooks.module_parts import buffers, is_bare, is_training, modules, parameters
from gobrrr.capture.hooks.transform_guard import unseen
from gobrrr.capture.session.recorder import Recorder
from gobrrr.guard.model.account import Measured
from gobrrr.guard.watch import randomness
from gobrrr.trial.arm.tally import Tally, _leaves

LOG, NONE = "log:", "no model is called in eval mode, or without gradients"
LOGGERS = (
    "torch.utils.tensorboard.writer:SummaryWriter.add_scalar", "tensorboardX.writer:SummaryWriter.add_scalar",
    "wandb:log", "wandb.sdk.wandb_run:Run.log", "mlflow:log_metric", "mlflow:log_metrics",
    "lightning.pytorch.trainer.connectors.logger_connector.logger_connector:_LoggerConnector.log_metrics",
    "pytorch_lightning.trainer.connectors.logger_connector.logger_connector:_LoggerConnector.log_metrics",
)  # fmt: skip
"""Calls by which loggers are given a name and its value, or a mapping of them."""
TRAINING = 0.5
"""Share of an evaluation's calls around which weights change, from which it trains (proposed: one that goes through
checkpoints changes them now and then)."""


class Evaluation(Tally):
    """Counts of one whole run, and its gates' measures."""

    def __init__(self, recorder: Recorder, measures: Sequence[tuple[str, str]]) -> None:
        """`measures`: name and where, module:function or log:key."""
        super().__init__(recorder, lambda ns: None, joined=True)
        self._measures = [Measured(*each) for each in measures]
        self._logged: dict[str, Any] = {}
        self._batch: tuple[Any, ...] = ()
        self._of_a_loader = False
        self._model: Callable[[], Any] = lambda: None
        self._at = self._seen = self._changed = 0
        self._versions = -1

    def install(self) -> None:
        """Before the program runs, which imports its loggers."""
        super().install()
        if any(each.measure.startswith(LOG) for each in self._measures):
            for place in LOGGERS:
                name, _, path = place.partition(":")
                Awaited(name, functools.partial(self._hear, name, path), self._patches)

    def given(self, index: Any, batch: Any) -> None:
        """A loader hands out a batch."""
        super().given(index, batch)
        self._batch = (batch,)

    def called(self, module: Any, args: Any, kwargs: Any) -> None:
        """A model was called: by a training, or to be evaluated."""
        import torch

        if is_bare(module):
            return
        if is_training(module) and torch.is_grad_enabled():
            self._batch, self._of_a_loader, self._versions = (), False, -1
            return
        if self._updates != self._at:  # another evaluation: the last one counts
            self._measures = [Measured(each.name, each.measure, error=each.error) for each in self._measures]
        if self._updates != self._at or self._model() is None:
            self._at, self._model, self._versions = self._updates, weakref.ref(module), -1
        if self._model() is not module:
            return
        self._seen, now = self._seen + 1, _versions(module)
        self._changed += self._versions not in (-1, now)  # by this call, or since the last one
        if self._batch or not self._of_a_loader:
            self._of_a_loader = bool(self._batch)
            (batch,), self._batch = self._batch or (_given(args, kwargs),), ()
            self._measure(module, batch)
        self._versions = _versions(module)

    def taken(self, over: bool = False) -> dict[str, Any]:
        """Return what was noted, and at the end what was measured."""
        trains = self._seen > 1 and self._changed >= TRAINING * (self._seen - 1)
        said = f"weights change around {self._changed} of its {self._seen} calls" if trains else ""
        found = [self._of_log(each) if each.measure.startswith(LOG) else each for each in self._measures]
        told = [msgspec.structs.replace(each, error=each.error or ("" if each.weight else NONE)) for each in found]
        return super().taken(over) | {"measured": msgspec.to_builtins(told), "trains": said}

    def _measure(self, module: Any, batch: Any) -> None:
        """Have the user's functions look at a batch: as if they had not been there."""
        import torch

        leaves = [leaf for leaf in _leaves(batch) if hasattr(leaf, "shape")]
        self._rows_now = rows = int(leaves[0].shape[0]) if leaves and len(leaves[0].shape) else 1
        given = [0.0, 0.0]
        with contextlib.suppress(Exception), unseen():
            for leaf in leaves:
                if hasattr(leaf, "layout") and leaf.device.type == "cpu" and not leaf.is_complex():
                    self._sum(leaf, given)
        modes = [(part, is_training(part)) for _, part in modules(module)]
        streams = randomness.streams()
        try:
            with torch.no_grad():
                self._measures = [_added(each, module, batch, rows, given) for each in self._measures]
        finally:
            randomness.restore(streams)
            for part, training in modes:
                part.training = training

    def _hear(self, name: str, path: str) -> None:
        """Listen to a logger whose module is there."""
        *owners, attribute = path.split(".")
        owner: Any = sys.modules[name]
        for each in owners:
            owner = getattr(owner, each, None)
        if (plain := getattr(owner, attribute, None)) is not None:
            setattr(owner, attribute, self._noted(plain))

    def _noted(self, log: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(log)
        def noted(*args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()]
            for one, other in zip(given, [*given[1:], None], strict=True):
                self._logged |= one if isinstance(one, Mapping) else {one: other} if isinstance(one, str) else {}
            return log(*args, **kwargs)

        return noted

    def _of_log(self, wanted: Measured) -> Measured:
        if (key := wanted.measure.removeprefix(LOG)) in self._logged:
            return _with(wanted, lambda: self._logged[key], 1)
        return msgspec.structs.replace(wanted, error=f"no logger is given {key}")


def _given(args: Any, kwargs: Any) -> Any:
    """Return what a model is called with: its only argument, all of them, or those with names."""
    return kwargs if not args else args[0] if len(args) == 1 and not kwargs else (*args, *kwargs.values())


def _versions(module: Any) -> int:
    """Return how often its weights were written to, and BatchNorm took a batch into its statistics."""
    running = [tensor for name, tensor in buffers(module) if name.endswith("num_batches_tracked")]
    return sum(0 if each.is_inference() else each._version for each in (*(p for _, p in parameters(module)), *running))


def _added(found: Measured, module: Any, batch: Any, rows: int, given: Sequence[float]) -> Measured:
    if found.measure.startswith(LOG) or found.error:
        return found

    def value() -> Any:
        said = _function(found.measure)(module, batch)
        return said[found.name] if isinstance(said, Mapping) else said

    if (added := _with(found, value, rows)).error:
        return added
    sums = found.given[0] + given[0], found.given[1] + given[1]
    return msgspec.structs.replace(added, given=sums, source=_source(found.measure))


def _with(found: Measured, value: Callable[[], Any], rows: int) -> Measured:
    """Add a value of so many samples, or why there is none."""
    error = ""
    try:
        number = float(value())
        error = "" if math.isfinite(number) else f"{found.measure} gives {number}"
    except Exception as raised:
        error = f"{found.measure}: {type(raised).__name__}: {raised}"[:160]
    if error:
        return msgspec.structs.replace(found, error=error)
    return msgspec.structs.replace(found, total=found.total + number * rows, weight=found.weight + rows)


@functools.cache
def _function(measure: str) -> Callable[[Any, Any], Any]:
    """Return a function of the program's: of the script itself, which is not run again, or of a module."""
    name, _, attribute = measure.partition(":")
    main = sys.modules["__main__"]
    is_main = Path(getattr(main, "__file__", None) or "").stem == name
    found: Callable[[Any, Any], Any] | None = getattr(
        main if is_main else importlib.import_module(name), attribute, None
    )
    if found is None:
        raise LookupError("is not there, or not yet, when a model is called: put it into a file of its own")
    return found


@functools.cache
def _source(measure: str) -> str:
    """Return a digest of the file in which the user's function is."""
    found = inspect.unwrap(_function(measure))
    with contextlib.suppress(OSError, TypeError):  # one of C, say
        file = inspect.getsourcefile(found if inspect.isroutine(found) else type(found)) or ""
        return hashlib.blake2b(Path(file).read_bytes(), digest_size=8).hexdigest()
    return ""
