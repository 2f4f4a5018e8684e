"""The three standard streams of gobrrr itself, where whoever started it had closed some."""

from __future__ import annotations

import os
import sys


def hold() -> None:
    """Put /dev/null where stdin, stdout or stderr is closed, so that no file of ours takes its number.

    Nothing that we print may go there: without a stderr, print() writes to stdout. The program sees them closed, as in
    a plain run: what we open is closed when it is executed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # it is closed
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))


def keep_stdout() -> None:
    """Keep stdout for what we print ourselves: whatever is started from now on writes to our stderr instead."""
    sys.stdout.flush()
    sys.stdout = open(os.dup(1), "w", encoding="utf-8")  # noqa: PTH123 - a descriptor, open until we end
    os.dup2(2, 1)


def to_nowhere(number: int) -> None:
    """Discard what is written to this stream from now on: nobody reads it any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def say(text: str) -> None:
    """A line on stderr, if anybody reads it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        to_nowhere(2)
