"""Nothing at all: the arm against itself, which says how much trials scatter here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class Identity(Remedy):
    """The A/A run."""

    name = "identity"
    title = "changes nothing: measures what trials scatter by on this machine"

    def apply(self, seams: Seams) -> None:
        seams.applied(self.name)
