"""A program run again and again in this process, from seed to seed, its model edited as it is put in eval mode."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import io
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.lossy.cases import Case
from gobrrr.guard.reference.variants import shifted

Edit = Callable[[nn.Module], None]
"""Changes a model in place."""


class Program:
    """One program, its definitions executed once, in the folder of its weights; what it prints is returned."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder, self.seconds = case, folder, 0.0
        tree = ast.parse(case.script.read_text(encoding="utf-8"))
        guard = next(n for n in tree.body if isinstance(n, ast.If) and "__main__" in ast.unparse(n.test))
        tree.body.remove(guard)
        self.names: dict[str, Any] = {"__name__": "program", "__file__": str(case.script)}
        exec(compile(tree, case.script, "exec"), self.names)
        self._main = compile(ast.Module(guard.body, []), case.script, "exec")
        self.names["__name__"] = "__main__"
        for load in case.loads:
            self.names[load] = functools.lru_cache(None)(self.names[load])
        for name, value in list(self.names.items()):
            if hasattr(value, "from_pretrained") and "For" in name:
                self.names[name] = _Kept(value)

    def run(self, arguments: Sequence[str], seed: int, edit: Edit | None = None) -> str:
        """Run it to its end, its seeds moved as gobrrr moves them; `seconds` of CPU time are those after eval()."""
        printed, before = io.StringIO(), sys.argv
        logging.disable(logging.INFO)
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed), shifted(seed), self._edited(edit):
            sys.argv = [self.case.script.name, *arguments]
            try:
                exec(self._main, self.names)
            finally:
                sys.argv = before
        self.seconds = time.process_time() - self._began
        return printed.getvalue()

    def value(self, arguments: Sequence[str], seed: int, edit: Edit | None = None) -> float:
        """The measure of such a run."""
        return self.case.gate.value(self.run(arguments, seed, edit), self.folder, 0)[0]

    @contextlib.contextmanager
    def _edited(self, edit: Edit | None) -> Iterator[None]:
        plain = nn.Module.train
        done: set[int] = set()

        def train(model: Any, mode: bool = True) -> Any:
            plain(model, mode)
            callers = sys._getframe(1), sys._getframe(2), sys._getframe(3)  # eval, and transformers' own train
            if not mode and any(each.f_globals is self.names for each in callers) and id(model) not in done:
                done.add(id(model))
                if edit is not None:
                    edit(model)
                self._began = time.process_time()
            return model

        nn.Module.train = train  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.train = plain  # type: ignore[method-assign]


class _Kept:
    """A class of transformers whose pretrained models are read once."""

    def __init__(self, kind: Any) -> None:
        self._read = functools.lru_cache(None)(kind.from_pretrained)

    def from_pretrained(self, folder: str) -> Any:
        return copy.deepcopy(self._read(folder))


def once(edit: Edit) -> Edit:
    """The same edit of weights, worked out for the first model and copied to the following."""
    kept: list[dict[str, Any]] = []

    def again(model: nn.Module) -> None:
        if kept:
            model.load_state_dict(kept[0], assign=True)
        else:
            edit(model)
            kept.append(model.state_dict())

    return again
