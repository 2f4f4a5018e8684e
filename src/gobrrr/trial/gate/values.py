"""Hold values of a setting against the user's gates: all share the whole runs of the program as it is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gobrrr.guard.model.gate import Gated
from gobrrr.trial.arm.arm import SPENT, ArmError
from gobrrr.trial.arm.whole import WholeRun
from gobrrr.trial.gate import pairs
from gobrrr.trial.gate.pairs import Known, Stack
from gobrrr.trial.gate.rule import Gate


class Values:
    """Whole runs of a sweep. `make` gives an arm for a value, or for the program as it is; `until`: as Sweep has it."""

    def __init__(
        self, make: Callable[[str | None, Path], WholeRun], folder: Path, gates: Sequence[Gate], until: float
    ) -> None:
        self._make, self._folder, self._gates, self._until = make, folder, gates, until
        self._known: Known = {}
        self._arms: list[WholeRun] = []

    def held(self, value: str, seconds: float) -> tuple[tuple[Gated, ...], str]:
        """Its gates, or why they are not known. Raises GobrrrError where the program as it is cannot be judged."""
        try:  # what a setting changes of the work is asked for
            found, _ = pairs.judged((self._arm, self._is_over), self._folder, (value,), self._gates, ("samples",),
                                    seconds, self._known)  # fmt: skip
        except ArmError as error:
            return (), error.reason
        return found.gates, "" if found.gates else found.reasons[0]

    def stop(self) -> None:
        """Kill whatever runs, from any thread; no arm starts any more."""
        self._until = -math.inf
        for arm in list(self._arms):
            arm.kill()

    def _is_over(self) -> bool:
        return time.monotonic() > self._until

    def _arm(self, place: Path, stack: Stack) -> WholeRun:
        if self._is_over():
            raise ArmError(SPENT)
        self._arms.append(arm := self._make(next(iter(stack), None), place))
        return arm
