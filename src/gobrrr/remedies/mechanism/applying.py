"""How do remedies come into the program's process? Which of them cannot be applied there is asked before."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import gobrrr
from gobrrr.capture.session.session import Session
from gobrrr.errors import GobrrrError
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.registry import composed, remedy

APPLIED = "applied"
"""File of a run's folder: the remedies of its recipe that took hold, and how."""
TIMEOUT_S = 120  # s to import torch and ask. proposed: a cold import on a slow disk; timings of such would settle it
_START = (
    "import sys; sys.path[:] = [p for p in sys.path if p] + [sys.argv.pop(1)]; "  # not what lies in the current folder
    "from gobrrr.remedies.mechanism.applying import main; main(sys.argv[1:])"
)


def install(seams: Seams, names: Iterable[str]) -> None:
    """Apply remedies by name, in their order. Raises GobrrrError for unknown and for conflicting ones."""
    remedies = composed(names)
    seams.names = tuple(each.name for each in remedies)
    for each in remedies:
        if reason := each.probe():
            raise GobrrrError(f"{each.name} cannot be applied here: {reason}", "gobrrr remedies lists what can")
    try:
        for each in remedies:
            each.apply(seams)
        seams.hook()
    except BaseException:
        seams.remove()
        raise


class Treated(Session):
    """The session of `gobrrr run --recipe`."""

    def prepare(self) -> None:
        """Apply the remedies; which of them took hold is left in the run's folder."""

        def said(name: str, detail: str) -> None:
            with Path(self.config.folder, APPLIED).open("a", encoding="utf-8") as file:
                file.write(f"{name}\t{detail}\n")

        def failed(error: BaseException) -> None:
            self.complain(error)
            if isinstance(error, GobrrrError):  # one that could not keep its word: whoever reads the output must know
                print(f"gobrrr: all remedies are taken away: {error.message}", file=sys.stderr, flush=True)

        install(Seams(said, failed), self.config.names())


def unable(names: Sequence[str], interpreter: str = sys.executable, seconds: float = TIMEOUT_S) -> dict[str, str]:
    """Remedy -> why it cannot be applied there. Empty where the interpreter does not answer in so many seconds: the
    trials will say it."""
    place = str(Path(gobrrr.__file__).parent.parent)
    try:
        done = subprocess.run(
            [interpreter, "-c", _START, place, *names], capture_output=True, text=True,
            timeout=min(TIMEOUT_S, seconds), check=True,
        )  # fmt: skip
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return {str(name): str(why) for name, why in found.items()}


def main(names: Sequence[str]) -> None:
    """Print {"name": "why not", ...} of those that cannot be applied."""
    print(json.dumps({name: why for name in names if (why := remedy(name).probe())}))
