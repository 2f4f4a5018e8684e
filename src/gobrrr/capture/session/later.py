"""Looks that are to come later than the first steady steps: from a step on, or whenever a signal asks for one."""

from __future__ import annotations

from gobrrr.capture.process.config import Config
from gobrrr.capture.process.listening import Listener
from gobrrr.capture.session.recorder import optimizer_made
from gobrrr.recording.model.event_kinds import TRAINS

ENDLESS = 1 << 40
"""Steps that nobody makes."""


class Later:
    """Holds the looks back until one is due. `holds`: none may open now."""

    def __init__(self, config: Config) -> None:
        self._from_step = config.from_step
        self._listener = Listener(config.on_signal, config.folder) if config.on_signal else None
        self.holds = bool(config.from_step or config.on_signal)
        self._told = ""

    def begin(self) -> None:
        """Listen, where a signal is to ask."""
        if self._listener is not None:
            self._listener.begin()

    def asked(self) -> bool:
        """Whether a signal came that no look has answered."""
        return self._listener is not None and self._listener.asked

    def due(self, kind: int, steps: int) -> bool:
        """Whether a look begins after this step of a loop of that `kind`, which has made so many."""
        if self._listener is not None:
            return self._listener.asked
        return steps >= self._from_step and (kind in TRAINS or not optimizer_made())  # else a training is to come

    def left(self, steps: int) -> int:
        """Steps that may pass unseen before the one after which a look is due."""
        return self._from_step - 1 - steps if self._listener is None else ENDLESS

    def over(self) -> None:
        """A look is complete, or refused: the next signal asks for the next one."""
        if self._listener is not None:
            self.holds, self._listener.asked = True, False

    def news(self) -> str:
        """Return why no signal will be heard; said once."""
        if self._listener is None or self._told:
            return ""
        self._listener.check()
        self._told = self._listener.why_not
        return self._told
