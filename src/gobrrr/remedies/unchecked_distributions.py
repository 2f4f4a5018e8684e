"""Distributions take their arguments as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import AddStatement, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class UncheckedDistributions(Remedy):
    """Distribution.set_default_validate_args(False), at the start and again before the first forward."""

    name = "unchecked_distributions"
    title = "lets torch.distributions take its arguments unchecked"
    codes = ("BRR316",)
    unseen = "an argument out of range (a NaN, a negative scale) is no longer refused with an error"
    by_hand = "torch.distributions.Distribution.set_default_validate_args(False)"
    edit = AddStatement(by_hand)

    def apply(self, seams: Seams) -> None:
        from torch.distributions import Distribution

        before = Distribution._validate_args

        def again(module: Any) -> None:
            """Libraries (pyro) switch it on when they are imported."""
            if Distribution._validate_args:
                Distribution.set_default_validate_args(False)

        again(None)
        seams.undo(lambda: Distribution.set_default_validate_args(before))
        seams.at_model(again)
        seams.applied(self.name)


REMEDY = UncheckedDistributions()
