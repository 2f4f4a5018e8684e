"""Distributions take their arguments as they are."""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

from gobrrr.capture.source.user_files import UserFiles
from gobrrr.remedies.model import AddStatement, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable

    from gobrrr.remedies.mechanism.seams import Seams


PYROS = ("validate_distributions_pyro", "validate_infer", "validate_poutine")
OFF: Any = 0
"""False where it is asked, and told from the program's own False, its last word, which stays when remedies go."""
IMPORTS = "<frozen importlib"


class UncheckedDistributions(Remedy):
    """Distribution.set_default_validate_args(False), at the start and again before the first forward of each model; as
    the program wants it where it asks for checks itself, by a library's function or not, and as it said last when
    remedies are taken away."""

    name = "unchecked_distributions"
    title = "lets torch.distributions take its arguments unchecked"
    codes = ("BRR316",)
    unseen = "an argument out of range (a NaN, a negative scale) is no longer refused with an error"
    by_hand = "torch.distributions.Distribution.set_default_validate_args(False)"
    edit = AddStatement(by_hand)

    def apply(self, seams: Seams) -> None:
        from torch.distributions import Distribution

        plain = Distribution.set_default_validate_args
        wanted = False

        def asked(value: bool) -> None:
            """By the program itself it is meant; libraries (pyro) switch it on when they are imported."""
            nonlocal wanted
            if _is_the_programs_word(sys._getframe(1), files):
                if value and not wanted:
                    seams.declined(self.name, "the program asks for these checks itself")
                wanted = bool(value)
            plain(value)

        def again(module: Any) -> None:
            if wanted:
                return
            _unchecked_in_pyro(seams)
            if Distribution._validate_args:
                plain(OFF)

        def undo() -> None:
            if Distribution._validate_args is OFF:
                plain(True)

        files = UserFiles()
        seams.undo(undo)
        again(None)
        seams.replace(Distribution, "set_default_validate_args", staticmethod(asked))
        seams.at_model(again)
        seams.applied(self.name)


def _is_the_programs_word(frame: FrameType | None, files: UserFiles) -> bool:
    """Whether the first of the program's own frames calls, and does not import a library that does."""
    while frame is not None and not files.is_user(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(IMPORTS):
            return False
        frame = frame.f_back
    return frame is not None


def _unchecked_in_pyro(seams: Seams) -> None:
    """Its own checks of distributions, models and guides: pyro.enable_validation(False) is all of them."""
    settings = getattr(sys.modules.get("pyro"), "settings", None)
    if settings is None:
        return
    on = _those_of_pyro(settings, lambda value: value)
    if on:
        settings.set(**dict.fromkeys(on, OFF))
        seams.undo(lambda: settings.set(**dict.fromkeys(_those_of_pyro(settings, lambda value: value is OFF), True)))


def _those_of_pyro(settings: Any, are: Callable[[Any], bool]) -> list[str]:
    known = settings.get()
    return [name for name in PYROS if are(known.get(name))]
