"""What watches a run to which the remedies of a recipe are applied."""

from __future__ import annotations

from pathlib import Path

from gobrrr.capture.session import Session

APPLIED = "applied"
"""File of a run's folder: the remedies of its recipe that took hold, and how."""


class Treated(Session):
    """The session of `gobrrr run --recipe`."""

    def prepare(self) -> None:
        """Apply the remedies; which of them took hold is left in the run's folder."""
        from gobrrr.remedies.seams import Seams

        def said(name: str, detail: str) -> None:
            with Path(self.config.folder, APPLIED).open("a", encoding="utf-8") as file:
                file.write(f"{name}\t{detail}\n")

        Seams(said, self.complain).install(self.config.names())
