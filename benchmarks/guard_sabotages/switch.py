"""From when on a sabotage acts: a count of updates (of calls where a program only infers), and patches that ask it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gobrrr.remedies.model import Remedy

LATEST = 28
"""The last onset that is drawn: of the 30 steps that the guard watches the last two are spoiled then."""


class Clock:
    """Updates ended so far, and the one from which on all is spoiled."""

    now = 0
    onset = 0


def on() -> bool:
    """Whether the sabotage acts now."""
    return Clock.now >= Clock.onset


@dataclass(frozen=True)
class Fault:
    """One sabotage. `known`: one of the forty that the guard was first attacked with; the others are new. `latest`: the
    last onset at which it still changes something that is watched. `safety`: the class that its author claims."""

    name: str
    act: Callable[[Any], None]
    title: str
    known: bool
    program: str
    safety: str
    latest: int


TABLE: dict[str, Fault] = {}


def fault(
    *, known: bool = False, program: str = "text", safety: str = "tolerance", latest: int = LATEST
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Enter a function of the seams into the table, by its name; its docstring is its title."""

    def enter(act: Callable[[Any], None]) -> Callable[[Any], None]:
        TABLE[act.__name__] = Fault(act.__name__, act, act.__doc__ or "", known, program, safety, latest)
        return act

    return enter


def instead(owner: Any, name: str, spoil: Callable[[Any], Any]) -> None:
    """From the onset on, owner.name is `spoil(what it was)`."""
    plain = getattr(owner, name)
    spoiled = spoil(plain)

    @functools.wraps(plain)
    def either(*args: Any, **kwargs: Any) -> Any:
        return (spoiled if on() else plain)(*args, **kwargs)

    setattr(owner, name, either)


def part(path: str, spoil: Callable[[Any, Any], Any]) -> Callable[[Any], None]:
    """For seams.at_model: the forward of a part of the model becomes `spoil(part, its forward)` from the onset on."""

    def meet(whole: Any) -> None:
        if not hasattr(whole, "_spoiled"):
            whole._spoiled = True
            found = whole.get_submodule(path)
            instead(found, "forward", lambda plain: spoil(found, plain))

    return meet


def made(what: Fault, onset: int) -> type[Remedy]:
    """The remedy class of one fault at one onset."""

    class Sabotage(Remedy):
        name = f"sabotage.{what.name}.{onset}"
        title = what.title
        safety = what.safety

        def apply(self, seams: Any) -> None:
            Clock.onset = onset
            _ticking(what.program != "text")
            what.act(seams)
            seams.applied(self.name, "spoiled")

    return Sabotage


def _ticking(calls: bool) -> None:
    if calls:
        from torch.nn.modules.module import register_module_forward_hook

        register_module_forward_hook(lambda module, *_: _tick() if hasattr(module, "head") else None)
    else:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(lambda *_: _tick())


def _tick() -> None:
    Clock.now += 1
