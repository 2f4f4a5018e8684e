"""The machine of a trace that came without one: nothing of it was measured, so nothing is priced."""

from __future__ import annotations

from gobrrr.machine.model.machine import Machine, Measured


def _nothing(unit: str, value: float = 0.0) -> Measured:
    return Measured(value, value, value, 0, unit)


UNKNOWN = Machine(
    fingerprint="", cpu="not this computer", isa=(), logical_cores=1, memory_bytes=0,
    effective_cores=_nothing("cores", 1.0), matmul={}, copy=(), dispatch=_nothing("ns"), fresh_page=_nothing("ns"),
)  # fmt: skip
