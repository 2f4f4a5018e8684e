"""Cost of the plain phase's hooks, measured in the watched process before its first step."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

ROUNDS, REPEATS = 400, 5


def costs() -> dict[str, float]:
    """Nanoseconds per look-up of a module's call; the other hooks are timed where they run."""
    return {"lookup_ns": _lookup()}


def _lookup() -> float:
    """Time that the descriptor adds to one module call."""
    import sys

    from gobrrr.capture.hooks.lookup import Lookup

    class Bare:
        def call(self) -> None: ...

    def looks(_: object) -> None:
        _ = sys._getframe(2).f_code

    class Watched:
        call = Lookup(Bare.call, looks)

    bare, watched = Bare(), Watched()
    plain = min(_time(lambda: bare.call()) for _ in range(REPEATS))
    seen = min(_time(lambda: watched.call()) for _ in range(REPEATS))
    return max(0.0, seen - plain)


def _time(call: Callable[[], object]) -> float:
    began = perf_counter_ns()
    for _ in range(ROUNDS):
        call()
    return (perf_counter_ns() - began) / ROUNDS
