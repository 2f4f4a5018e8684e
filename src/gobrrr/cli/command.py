"""A verb of the command line: an object called `command` in its module, with the two methods below."""

from __future__ import annotations

import argparse
from typing import Protocol


class Command(Protocol):
    """A verb. Import what is heavy inside `run`, so that `--help` stays quick.

    A verb that sets `takes_program = True` gets everything from the first word that is not its own option on,
    untouched, as `args.program`: `["train.py", "--epochs", "1"]`, `["-m", "module", ...]` or `["--", "command", ...]`.
    """

    name: str
    help: str

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's options to its parser."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code; raises GobrrrError for whatever people can mend."""
        ...
