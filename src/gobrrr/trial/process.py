"""What both kinds of arms do first in the user's process."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from gobrrr.capture.config import Config
from gobrrr.capture.session import StopProgram
from gobrrr.errors import GobrrrError
from gobrrr.trial import protocol

_PR_SET_PDEATHSIG = 1


def applied_remedies(config: Config, told: protocol.Line) -> Any:
    """The seams with an arm's remedies installed; the referee hears which ones took hold."""
    from gobrrr.remedies.seams import Seams

    def failed(error: BaseException) -> None:
        told.send("failed", error=getattr(error, "message", None) or f"{type(error).__name__}: {error}")

    seams = Seams(lambda name, detail: told.send("applied", remedy=name, detail=detail), failed)
    try:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise GobrrrError("it runs in several ranks, and a trial measures one process")
        seams.install(config.names())
    except Exception as error:
        failed(error)
        raise StopProgram(1) from None  # without its remedies the program has nothing to do here
    return seams


def die_with_the_parent() -> None:
    """A referee that is killed leaves no arm behind, an arm no worker, though they were stopped at that moment."""
    if sys.platform != "linux":
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
