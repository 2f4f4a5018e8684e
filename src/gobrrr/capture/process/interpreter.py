"""Reading a command line's options for Python: will it look at PYTHONPATH and run our sitecustomize at all?"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

_PYTHON = re.compile(r"(python|pypy)[\d.]*[a-z]*")
_KEEP_OUT = "IES"
"""Isolated, without environment, without site: our sitecustomize is not found or not run."""
_TAKE_A_VALUE = "WX"
_LAST = "cm"
"""Options that begin the program."""


def kept_out_by(command: Sequence[str]) -> str:
    """The option with which this command's Python will not read our sitecustomize ("-I"); "" where there is none.

    Seen are Python itself, also behind another command (env, nice, numactl), and the first line of a script. What a
    shell script starts cannot be known.
    """
    return next((f"-{letter}" for letter, _ in _options(command) if letter and letter in _KEEP_OUT), "")


def program_of(command: Sequence[str]) -> str:
    """The module or the script that this command's Python runs, as it is named there; "" where there is neither."""
    *_, (letter, value) = [("c", ""), *_options(command)]
    return value if letter in ("m", "") else ""


def _options(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Letters of the options of this command's Python, with their values, and what it runs, which ends them: that of
    -c or -m, or ("", script)."""
    words = [*_first_line(command[0]), *command]
    at = next((i for i, word in enumerate(words) if _is_python(word)), len(words))
    rest = iter(words[at + 1 :])
    for word in rest:
        if word in ("-", "--") or not word.startswith("-"):
            yield "", next(rest, "") if word == "--" else word
            return
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                next(rest, None)
            continue
        for place, letter in enumerate(word[1:], 2):
            takes = letter in _TAKE_A_VALUE + _LAST
            yield letter, (word[place:] or next(rest, "")) if takes else ""
            if letter in _LAST:
                return
            if takes:
                break


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
