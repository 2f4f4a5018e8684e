"""Watches a run to which the remedies of a recipe are applied."""

from __future__ import annotations

import sys
from pathlib import Path

from gobrrr.capture.session.session import Session
from gobrrr.errors import GobrrrError

APPLIED = "applied"
"""File of a run's folder: the remedies of its recipe that took hold, and how."""


class Treated(Session):
    """The session of `gobrrr run --recipe`."""

    def prepare(self) -> None:
        """Apply the remedies; which of them took hold is left in the run's folder."""
        from gobrrr.remedies.mechanism.seams import Seams

        def said(name: str, detail: str) -> None:
            with Path(self.config.folder, APPLIED).open("a", encoding="utf-8") as file:
                file.write(f"{name}\t{detail}\n")

        def failed(error: BaseException) -> None:
            self.complain(error)
            if isinstance(error, GobrrrError):  # one that could not keep its word: whoever reads the output must know
                print(f"gobrrr: all remedies are taken away: {error.message}", file=sys.stderr, flush=True)

        Seams(said, failed).install(self.config.names())
