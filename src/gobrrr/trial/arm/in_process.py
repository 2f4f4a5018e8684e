"""First work in the user's process: in the run that is diagnosed before a tuning, and in both kinds of arms."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from gobrrr.capture.process.config import Config
from gobrrr.capture.session.session import Session, StopProgram
from gobrrr.capture.source.user_code import user_line
from gobrrr.errors import GobrrrError
from gobrrr.guard.watch.effects import tell_of_torch_save
from gobrrr.trial.arm import protocol


def world_size() -> int:
    """Ranks of the job that this process is of, as its launcher says; 1 where nothing that is a number is said."""
    said = os.environ.get("WORLD_SIZE", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else 1


class Diagnosing(Session):
    """The session of `gobrrr run`, in a copy of the user's folder."""

    def prepare(self) -> None:
        """torch.save says what it opens, so that what keeps the user's files hears of it."""
        tell_of_torch_save()


def applied_remedies(config: Config, told: protocol.Line, aside: Callable[[int], object] = lambda ns: None) -> Any:
    """The seams with an arm's remedies installed; the referee hears which ones took hold, and why others did not.
    `aside`: as Seams has it."""
    from gobrrr.remedies.mechanism.applying import install
    from gobrrr.remedies.mechanism.seams import Seams

    tell_of_torch_save()

    def failed(error: BaseException) -> None:
        told.send("failed", error=getattr(error, "message", None) or f"{type(error).__name__}: {error}")

    def tell(kind: str) -> Callable[[str, str], None]:
        return lambda name, detail: told.send(kind, remedy=name, detail=detail, line=user_line(sys._getframe()))

    seams = Seams(tell("applied"), failed, tell("declined"), aside)
    try:
        if world_size() > 1:
            raise GobrrrError("it runs in several ranks, and a trial measures one process")
        install(seams, config.names())
    except Exception as error:
        failed(error)
        raise StopProgram(1) from None  # without its remedies the program has nothing to do here
    return seams
