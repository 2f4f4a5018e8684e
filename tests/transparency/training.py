"""A small training to watch in the tests' own process, what it leaves there, and ways to break gobrrr meanwhile."""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, Dataset

import gobrrr
from gobrrr.capture.process import bootstrap
from gobrrr.capture.session.session import Session
from gobrrr.recording.run_folder.journal import read_journal
from tests.transparency.pairs import quick
from tests.transparency.programs import seen


class Noisy(Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(6) + random.random() + np.random.rand(), index % 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def train(epochs: int = 9, meanwhile: Callable[[int], object] = lambda step: None) -> dict[str, Any]:
    """Four steps per epoch, and an evaluation; hooks of the user's own stand behind gobrrr's in torch's tables."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    calls: list[str] = []
    mine = [
        register_optimizer_step_pre_hook(lambda *_: calls.append("before")),
        register_optimizer_step_post_hook(lambda *_: calls.append("after")),
    ]
    model, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(Noisy(), batch_size=6, shuffle=True)
    losses, step = [], 0
    for _ in range(epochs):
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
            meanwhile(step)
        with torch.no_grad():
            losses.append(model(torch.ones(2, 6)).sum().item())
    for handle in mine:
        handle.remove()
    gc.collect(1)
    return {
        "losses": losses,
        "calls": calls,
        "model": seen.of_model(model),
        "optimizer": seen.of_optimizer(optimizer),
        "random": seen.randomness(),
    }


def surroundings() -> dict[str, Any]:
    """All that a watcher could have left in this process."""
    found = {"seams": seen.seams(), "instruments": seen.instruments(), "flags": seen.torch_flags()}
    process = seen.process()
    del process["modules"]  # what this test imports itself
    process["gc"].pop()  # objects that tests/conftest.py has frozen come to their end
    return {**found, "process": process, "fds": len(list(Path("/proc/self/fd").iterdir()))}


@contextlib.contextmanager
def watched(folder: Path, **changes: Any) -> Iterator[Session | None]:
    """As gobrrr.watch(), with a Config that hurries."""
    folder.mkdir(exist_ok=True)
    session = bootstrap.watch(quick(folder, steps=3, sample_ns=1, **changes))
    try:
        yield session
    finally:
        if session is not None:
            session.end("block ended")
        bootstrap.session = None


def notes(folder: Path) -> str:
    """Everything that the recording says went wrong, and the note of a watching that could not begin."""
    records = [record for path in folder.glob("*.journal") for record in read_journal(path).records]
    telling = [r for r in records if r.get("type") in ("failed", "note") or r.get("errors") or r.get("error")]
    return json.dumps(telling) + "".join(path.read_text() for path in folder.glob("seen-*"))


MODULES = {
    path.stem: ".".join(("gobrrr", *path.relative_to(Path(gobrrr.__file__).parent).with_suffix("").parts))
    for path in [
        *Path(gobrrr.__file__).parent.glob("capture/*/*.py"),
        Path(gobrrr.__file__).parent / "system" / "descriptors.py",
    ]
}
"""The modules that work inside a watched program, by their last name; no two have the same."""


def break_(monkeypatch: pytest.MonkeyPatch, where: str, after: int, error: BaseException) -> list[int]:
    """Let a function of gobrrr.capture raise from its call number `after` on; the list counts its calls."""
    module, *path = where.split(".")
    owner: Any = importlib.import_module(MODULES[module])
    for name in path[:-1]:
        owner = getattr(owner, name)
    held, calls = vars(owner)[path[-1]], []
    real = held.fget if isinstance(held, property) else held

    def broken(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) > after:
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, path[-1], property(broken) if isinstance(held, property) else broken)
    for user in [m for name, m in list(sys.modules.items()) if name.startswith("gobrrr.") and len(path) == 1]:
        if vars(user).get(path[0]) is real:  # imported by name
            monkeypatch.setattr(user, path[0], broken)
    return calls


def functions_of(module: str) -> Iterator[str]:
    """Every function, method and property that a module of gobrrr.capture defines, as `break_` names them."""
    found = importlib.import_module(MODULES[module])
    for name, value in vars(found).items():
        if getattr(value, "__module__", None) != found.__name__:
            continue
        if inspect.isfunction(value):
            yield f"{module}.{name}"
        elif inspect.isclass(value):
            members = vars(value).items()
            yield from (f"{module}.{name}.{m}" for m, v in members if inspect.isfunction(v) or isinstance(v, property))
