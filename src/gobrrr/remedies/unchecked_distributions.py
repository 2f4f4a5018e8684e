"""Distributions take their arguments as they are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gobrrr.capture.userfiles import UserFiles
from gobrrr.remedies.model import AddStatement, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


PYROS = ("validate_distributions_pyro", "validate_distributions_torch", "validate_infer", "validate_poutine")


class UncheckedDistributions(Remedy):
    """Distribution.set_default_validate_args(False), at the start and again before the first forward of each model; as
    the program wants it where it asks for checks itself."""

    name = "unchecked_distributions"
    title = "lets torch.distributions take its arguments unchecked"
    codes = ("BRR316",)
    unseen = "an argument out of range (a NaN, a negative scale) is no longer refused with an error"
    by_hand = "torch.distributions.Distribution.set_default_validate_args(False)"
    edit = AddStatement(by_hand)

    def apply(self, seams: Seams) -> None:
        from torch.distributions import Distribution

        before, plain = Distribution._validate_args, Distribution.set_default_validate_args
        wanted: list[bool] = []

        def asked(value: bool) -> None:
            """By the program itself it is meant; libraries (pyro) switch it on when they are imported."""
            if is_user(sys._getframe(1).f_code.co_filename) and value and not wanted:
                wanted.append(True)
                seams.declined(self.name, "the program asks for these checks itself")
            plain(value)

        def again(module: Any) -> None:
            if wanted:
                return
            _unchecked_in_pyro(seams)
            if Distribution._validate_args:
                plain(False)

        is_user = UserFiles().is_user
        seams.undo(lambda: plain(before))
        again(None)
        seams.replace(Distribution, "set_default_validate_args", staticmethod(asked))
        seams.at_model(again)
        seams.applied(self.name)


def _unchecked_in_pyro(seams: Seams) -> None:
    """Its own checks of distributions, models and guides: pyro.enable_validation(False) is all of them."""
    settings = getattr(sys.modules.get("pyro"), "settings", None)
    if settings is None:
        return
    known = settings.get()
    on = {name: True for name in PYROS if known.get(name)}
    if on:
        settings.set(**dict.fromkeys(on, False))
        seams.undo(lambda: settings.set(**on))


REMEDY = UncheckedDistributions()
