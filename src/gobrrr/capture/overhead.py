"""What the hooks of the plain phase cost, measured in the watched process before its first step."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from time import perf_counter_ns

ROUNDS, REPEATS = 400, 5


def costs() -> dict[str, float]:
    """Nanoseconds per journalled event and per module look-up, from timing the same work here."""
    return {"event_ns": _event(), "lookup_ns": _lookup(), "flush_ns": 20_000.0}


def _event() -> float:
    """Time of one note: clock, tuple, append, the guard's call around it."""
    buffer = array("q")

    def note(kind: int, number: int, value: int = 0) -> int:
        now = perf_counter_ns()
        buffer.extend((now, kind, number, value))
        return now

    def guarded(*args: int) -> None:
        try:
            note(*args)
        except Exception:
            raise

    return 2.0 * min(_time(lambda: guarded(1, 2, 3)) for _ in range(REPEATS))  # twice: registries, thread checks


def _lookup() -> float:
    """Time that the descriptor adds to one module call."""
    import sys

    from gobrrr.capture.hooks import Lookup

    class Bare:
        def call(self) -> None: ...

    class Watched:
        call = Lookup(Bare.call, lambda _: sys._getframe(2).f_code)

    bare, watched = Bare(), Watched()
    plain = min(_time(lambda: bare.call()) for _ in range(REPEATS))
    seen = min(_time(lambda: watched.call()) for _ in range(REPEATS))
    return max(0.0, seen - plain)


def _time(call: Callable[[], object]) -> float:
    began = perf_counter_ns()
    for _ in range(ROUNDS):
        call()
    return (perf_counter_ns() - began) / ROUNDS
