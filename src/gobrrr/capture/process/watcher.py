"""Watchers of a process: `gobrrr run`'s session, and an arm's side of a trial, timed or observed."""

from __future__ import annotations

from typing import Protocol

from gobrrr.capture.process.config import Config


class Watcher(Protocol):
    """Interface to the start-up code, `gobrrr.watch()` and `gobrrr.steps()`. One per process at a time."""

    config: Config
    ended: bool
    nested: bool
    """Begun by `gobrrr.watch()`, not by the start of the process."""

    def begin(self) -> None:
        """Install what watches; called once torch is imported whole."""

    def end(self, reason: str = "exit") -> None:
        """Take it off and keep what was seen; safe to call twice."""

    def forked(self) -> None:
        """This process is a forked child of the watched one."""

    def mark(self) -> None:
        """An explicit step ends here."""
