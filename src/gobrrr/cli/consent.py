"""Asking before something is started that a file names: all of it is shown, and only a typed yes or --yes starts it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gobrrr.errors import GobrrrError
from gobrrr.system.escape import LIMIT, command_line, plain

if TYPE_CHECKING:
    from gobrrr.trial.receipt.receipt import EditTold

NOT_RUN = 4
"""Exit code where nothing was started because nobody agreed to it."""


def show(command: Sequence[str], folder: str, doing: str) -> None:
    """Write to stderr the command that is about to be started, its folder, and the reason."""
    sys.stderr.write(f"gobrrr: {plain(doing)}\n")
    sys.stderr.write(f"  command  {command_line(command)}\n  folder   {command_line([folder])}\n")
    sys.stderr.flush()


def show_edit(name: str, edit: EditTold) -> None:
    """Write to stderr all that an edit of a file's changes: variables, words and lines."""
    sys.stderr.write(f"  edit     {plain(name)}\n")
    settings = [f"{variable}={value}" for variable, value in edit.env.items()]
    told = [command_line([each]) for each in settings] + ([command_line(edit.args)] if edit.args is not None else [])
    sys.stderr.writelines(f"           {plain(line)}\n" for line in [*told, *edit.diff.splitlines()])
    sys.stderr.flush()


def ask(command: Sequence[str], folder: str, why: str) -> None:
    """Return where the person at the terminal types yes. Raises GobrrrError for all else, and where there is nobody."""
    sys.stderr.write(f"  note     {why}\n")
    if len(command_line([*command, folder])) > LIMIT:
        raise GobrrrError("this command is too long to be read and agreed to", "--yes starts it unread", NOT_RUN)
    if not sys.stdin.isatty():
        nobody = "the command was not started: nobody is at this terminal to agree to it"
        raise GobrrrError(nobody, "--yes starts it without asking", NOT_RUN)
    sys.stderr.write("run it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise GobrrrError("the command was not started, as you did not agree", "--yes starts it unasked", NOT_RUN)
