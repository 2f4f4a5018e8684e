"""Places in an unmodified program where a remedy may act: torch is there, an optimizer steps, a model is called for the
first time, a loader is made. The only place that touches torch's seams for remedies."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from gobrrr.capture.hooks.lookup import Lookup, ModuleCall, Patches
from gobrrr.capture.hooks.transform_guard import called_from_compiled, hide_own_code, is_the_programs
from gobrrr.remedies.mechanism.forwards import is_ours, plainly_saved

QUIET_CALLS = 20_000
"""Calls of modules after the last new one from which all are taken to be met: looking costs half a microsecond each."""


Said = Callable[[str, str], None]
_OURS = (__name__, "gobrrr.capture.hooks.lookup")


class Seams:
    """Remedies register here; `hook` puts the hooks in place, `remove` undoes everything in reverse.

    A remedy that fails later, in a hook, is told to `failed`; all are then taken away and the program goes on. Without
    `failed` there is nobody to tell, and the error comes up where it happened. `declined` hears why one left something
    as it was; `aside` what took ns that will not be taken again, so that who measures steps leaves them out.
    """

    def __init__(
        self, said: Said = lambda name, detail: None, failed: Callable[[BaseException], object] | None = None,
        declined: Said = lambda name, why: None, aside: Callable[[int], object] = lambda ns: None,
    ) -> None:  # fmt: skip
        self._said, self._failed, self.declined, self.aside = said, failed, declined, aside
        self.names: tuple[str, ...] = ()
        """Names of the remedies that are applied together."""
        self._patches = Patches()
        self._saves_plainly = False
        self._optimizer: list[Callable[[Any], None]] = []
        self._model: list[Callable[[Any], None]] = []
        self._loader: list[Callable[[dict[str, Any]], dict[str, Any]]] = []
        self._step: list[Callable[[], None]] = []
        self._batch: list[Callable[[Any, Any], Any]] = []
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()
        self._pid = os.getpid()
        self._quiet = 0
        self._calls: ModuleCall | None = None

    # for remedies

    def at_optimizer(self, action: Callable[[Any], None]) -> None:
        """Call the action when an optimizer is about to step for the first time."""
        self._optimizer.append(action)

    def at_step(self, action: Callable[[], None]) -> None:
        """Whenever an optimizer is about to step."""
        self._step.append(action)

    def at_model(self, action: Callable[[Any], None]) -> None:
        """Call the action when a module that the program calls itself is about to run for the first time."""
        self._model.append(action)

    def at_loader(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change a DataLoader when it is made: `change` gets its keyword arguments and gives those to use."""
        self._loader.append(change)

    def at_batch(self, change: Callable[[Any, Any], Any]) -> None:
        """Change a batch when the program has drawn it: `change` gets the DataLoader's iterator and the batch, and
        gives the batch to use."""
        self._batch.append(change)

    def undo(self, action: Callable[[], object]) -> None:
        """Called when the remedies are taken away, last one first."""
        self._patches.append(action)

    def replace(self, thing: Any, name: str, value: Any) -> None:
        """Patches.replace, until the remedies are taken away."""
        if is_ours(value) and not self._saves_plainly:
            import torch

            self._saves_plainly = True
            self._patches.replace(torch, "save", plainly_saved(torch.save))
        self._patches.replace(thing, name, value)

    def applied(self, name: str, detail: str = "") -> None:
        """A remedy took hold; one that never says so was not tried."""
        self._said(name, detail)

    def give_up(self, error: BaseException) -> None:
        """Tell that a remedy cannot keep its word any more, and take all remedies away. Raises `error` where nobody is
        told, or it is the program's own."""
        try:
            raise error
        except BaseException as raised:
            self._give_up(raised)

    # for those who apply them

    def remove(self) -> None:
        """Undo everything, as Patches.take_out does; safe to call twice."""
        self._patches.take_out()

    def hook(self) -> None:
        """Put the hooks in place that what is registered needs."""
        if self._optimizer or self._model or self._step:
            from torch.optim.optimizer import register_optimizer_step_pre_hook

            hook = called_from_compiled(self._guarded(self._optimizer_steps))
            self.undo(register_optimizer_step_pre_hook(hook).remove)
        if self._model:
            self._hook_models()
        if self._loader:
            self._hook_loader()
        if self._batch:
            self._hook_batches()

    def _guarded(self, body: Callable[..., Any], otherwise: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
        """Whatever goes wrong in `body` is told, all remedies go, and `otherwise` is what the program gets."""

        def hook(*args: Any) -> Any:
            if not self._patches:  # taken out, and somebody who has wrapped it still calls it
                return otherwise(*args)
            try:
                return body(*args)
            except BaseException as error:
                self._give_up(error)
                return otherwise(*args)

        return hook

    def _give_up(self, error: BaseException) -> None:
        """Called with the exception in hand: raises it again where it is the program's, or nobody is told."""
        if self._failed is None or is_the_programs(error):
            raise
        with contextlib.suppress(Exception):
            self.remove()
        with contextlib.suppress(Exception):
            self._failed(error)

    def _optimizer_steps(self, optimizer: Any, *_: Any) -> None:
        if self._calls is not None:
            self._calls.again()
        if self._is_new(optimizer):
            for action in self._optimizer:
                action(optimizer)
        for step in self._step:
            step()

    def _hook_models(self) -> None:
        """No hook of torch's: torch.compile would see it. The look-up comes before the call, so that what an action
        does to the module serves that very call."""
        hide_own_code("gobrrr.remedies.mechanism.seams")
        self._calls = ModuleCall(lambda plain: Lookup(plain, self._guarded(self._module_runs)))
        self.undo(self._calls.remove)

    def _module_runs(self, module: Any) -> None:
        """The first module to run that is new is one that the program calls itself; its parts are met with it."""
        if self._asks_only(module):
            return
        self._quiet += 1
        if self._quiet > QUIET_CALLS and self._calls is not None:
            self._calls.remove()
        if self._is_new(module):
            self._quiet = 0
            for part in module.modules():
                self._met.add(part)
            for action in self._model:
                action(module)

    def _asks_only(self, module: Any) -> bool:
        """Whether torch.compile looks the method up, which does not mean to call it; what the program itself has
        compiled is called from the compiler's own code."""
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_globals.get("__name__") in _OURS:
            frame = frame.f_back  # None where C calls it: a thread's start, a finalizer
        if frame is None or not str(frame.f_globals.get("__name__")).startswith("torch._dynamo"):
            return False
        return not (hasattr(module, "_orig_mod") and frame.f_code is getattr(type(module).__call__, "__code__", None))

    def _hook_loader(self) -> None:
        from torch.utils.data import DataLoader

        def change_all(kwargs: dict[str, Any]) -> dict[str, Any]:
            return functools.reduce(lambda given, change: change(given), self._loader, dict(kwargs))

        plain, changed = DataLoader.__init__, self._guarded(change_all, lambda given: given)
        _, *known = inspect.signature(plain).parameters.values()
        names = [each.name for each in known if each.kind == each.POSITIONAL_OR_KEYWORD]

        @functools.wraps(plain)  # trainers look at its arguments to make a loader like another
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            if len(given) < len(args) + len(kwargs):  # twice or too many, as torch will say; or names nobody knows
                return plain(self, *args, **changed(kwargs))
            plain(self, **changed(given))

        self.replace(DataLoader, "__init__", __init__)

    def _hook_batches(self) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        def drawn(iterator: Any, batch: Any) -> Any:
            for change in self._batch:
                batch = change(iterator, batch)
            return batch

        plain, changed = _BaseDataLoaderIter.__next__, self._guarded(drawn, lambda iterator, batch: batch)

        @functools.wraps(plain)
        def __next__(self: Any) -> Any:
            return changed(self, plain(self))

        self.replace(_BaseDataLoaderIter, "__next__", __next__)

    def _is_new(self, thing: Any) -> bool:
        if thing in self._met or os.getpid() != self._pid:
            return False
        self._met.add(thing)
        return True
