"""Are the numbers still right? Usable alone, in tests: needs torch and numpy, and of gobrrr its seams.

from gobrrr import guard

def test_my_fused_layer_changes_nothing():
    assert guard.compare(train, train_with_my_layer)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gobrrr.guard.model.observation import Observation
    from gobrrr.guard.model.verdict import GREEN, VERDICTS, Guarded
    from gobrrr.guard.two_runs import compare, observe
    from gobrrr.guard.verdicts.judging import judge
    from gobrrr.guard.watch.witness import Witness

_HOME = {
    "compare": "two_runs", "observe": "two_runs", "judge": "verdicts.judging", "Guarded": "model.verdict",
    "GREEN": "model.verdict", "VERDICTS": "model.verdict", "Observation": "model.observation",
    "Witness": "watch.witness",
}  # fmt: skip
__all__ = ["GREEN", "VERDICTS", "Guarded", "Observation", "Witness", "compare", "judge", "observe"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
