"""How did one rank end?"""

from __future__ import annotations

import msgspec

from gobrrr.recording.model.facts import Span

GONE = "gone.json"
"""File of a run's folder: when processes were over, ns since the epoch by pid."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's last words; a rank that was killed leaves none."""

    pid: int
    ended: int = 0
    """ns since the epoch."""
    error: str = ""
    """Class of the error that ended it; empty of one that came to its end."""
    peer: bool = False
    """The error is of the connection to other ranks."""
    where: Span | None = None
    """The user's line at which it was."""
