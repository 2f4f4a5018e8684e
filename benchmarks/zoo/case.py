"""One program of the zoo: what it needs, what it does, and what an expert says is wrong with it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

PROGRAMS = Path(__file__).with_name("programs")


class Case(NamedTuple):
    """Written by hand from clock.py's evidence and the code, before gobrrr was run on it. Codes are of rules that say
    that cause: where a later rule does (BRR111, BRR112, BRR311 to BRR313), it was added."""

    name: str
    needs: tuple[str, ...]
    """Modules that it imports; a missing one skips it."""
    kind: str
    """Of its loop: training or inference."""
    cause: str
    """What an expert names."""
    bounds: tuple[str, ...]
    """Verdicts that say so."""
    codes: tuple[str, ...] = ()
    """Findings that say so."""
    lines: tuple[str, ...] = ()
    """Texts of the program's lines that help; empty where no single line does."""
    fix: tuple[tuple[str, str], ...] = ()
    """Texts to replace by hand, each there once; empty where an expert would leave the program alone."""
    command: tuple[str, ...] = ()
    """In place of the bare interpreter, after it."""
    counts: str = ""
    """What the clock counts where it is not the kind's: forwards, where weights are updated by hand."""
    per_step: int = 1
    """Of what the clock counts: updates, or the forwards of one explanation, which its backward belongs to."""

    @property
    def script(self) -> Path:
        """Its file."""
        return PROGRAMS / f"{self.name}.py"

    def missing(self) -> str:
        """Names of modules that are not installed."""
        return ", ".join(name for name in self.needs if find_spec(name) is None)

    def plain(self) -> list[str]:
        """The command that runs it, in a folder that holds its file."""
        return [sys.executable, *self.command, self.script.name]

    def marked(self) -> set[int]:
        """Numbers of the lines that help."""
        source = self.script.read_text(encoding="utf-8").splitlines()
        return {number for number, line in enumerate(source, 1) if any(text in line for text in self.lines)}

    def mended(self) -> str:
        """Its source with the fix; ValueError where a text is not there exactly once."""
        source = self.script.read_text(encoding="utf-8")
        for old, new in self.fix:
            if source.count(old) != 1:
                raise ValueError(f"{self.name}: {old!r} is there {source.count(old)} times")
            source = source.replace(old, new)
        return source
