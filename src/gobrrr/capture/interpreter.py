"""What a command line asks of Python: whether it will look at PYTHONPATH and run our sitecustomize at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

_PYTHON = re.compile(r"(python|pypy)[\d.]*[a-z]*")
_KEEP_OUT = "IES"
"""Isolated, without environment, without site: our sitecustomize is not found or not run."""
_TAKE_A_VALUE = "WX"
_LAST = "cm"
"""What follows these is the program."""


def kept_out_by(command: Sequence[str]) -> str:
    """The option with which this command's Python will not read our sitecustomize ("-I"); "" where there is none.

    Seen are Python itself, also behind another command (env, nice, numactl), and the first line of a script. What a
    shell script starts cannot be known.
    """
    words = [*_first_line(command[0]), *command]
    at = next((i for i, word in enumerate(words) if _is_python(word)), len(words))
    return _option(words[at + 1 :])


def _option(words: Sequence[str]) -> str:
    """The first option of Python's own that keeps us out. Options end where Python's own reading of them ends."""
    rest = iter(words)
    for word in rest:
        if word in ("-", "--") or not word.startswith("-"):
            return ""
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                next(rest, None)
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter in _KEEP_OUT:
                return f"-{letter}"
            if letter in _LAST:
                return ""
            if letter in _TAKE_A_VALUE:
                if not word[place:]:
                    next(rest, None)
                break
    return ""


def _is_python(word: str) -> bool:
    found = shutil.which(word)
    return found is not None and any(_PYTHON.fullmatch(Path(p).name) for p in (found, os.path.realpath(found)))


def _first_line(command: str) -> list[str]:
    """The interpreter that a script names, as words."""
    try:
        with open(shutil.which(command) or command, "rb") as file:  # noqa: PTH123
            line = file.readline(4096)
    except OSError:
        return []
    return line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
