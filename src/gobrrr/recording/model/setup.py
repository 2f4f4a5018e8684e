"""What a run was started with, beside its command: two runs of one program are told apart by it."""

from __future__ import annotations

import msgspec


class Setup(msgspec.Struct, frozen=True):
    """Time, source and environment of a run, as they were when it was started."""

    began_ns: int = 0
    """ns since the epoch."""
    commit: str = ""
    """Commit of the git repository that the program lies in; empty where there is none, or git gave no answer."""
    branch: str = ""
    edited: bool | None = None
    """Whether files that git tracks differed from the commit; null where git gave no answer."""
    script: str = ""
    """First 16 hex digits of the script's SHA-256; empty for a module, or where it could not be read."""
    variables: dict[str, str] = {}
    """Environment variables that can move a step's time or its memory."""
    remedies: tuple[str, ...] = ()
    """Remedies of the recipe that it ran with."""
