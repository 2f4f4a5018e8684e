"""A command line, read without looking at any file: what its Python is told, and which program it runs in the end."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

PYTHON = re.compile(r"(python|pypy)[\d.]*[a-z]*")
_TAKE_A_VALUE = "WX"
_LAST = "cm"
"""Options that begin the program."""
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
"""torch's own launchers of ranks."""
ACCELERATE = ("accelerate", "accelerate-launch", "accelerate.commands.launch", "accelerate.commands.accelerate_cli")
_LAUNCHERS = (*TORCHRUN, *ACCELERATE, "deepspeed")


def python_options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Letters of the options behind a Python, with their values, and what it runs, which ends them: that of -c or -m,
    or ("", script)."""
    rest = iter(words)
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


def program_of(command: Sequence[str], root: str = "") -> str:
    """The script, module or program that a command runs: behind other commands (env, nice), Python's own options and
    launchers of ranks. A script's path is made plain, and relative where it lies below `root`."""
    program = _named(command)
    if not program.endswith(".py"):
        return program
    plain = PurePath(os.path.normpath(program))
    return str(plain.relative_to(root)) if root and plain.is_relative_to(root) else str(plain)


def _named(command: Sequence[str]) -> str:
    for at, word in enumerate(command):
        name, rest = PurePath(word).name, command[at + 1 :]
        if PYTHON.fullmatch(name) and rest:
            *_, (letter, value) = [("c", ""), *python_options(rest)]
            if letter == "c":
                return name
            return _launched(rest) or value if PurePath(value).name in _LAUNCHERS else value
        if name in _LAUNCHERS:
            return _launched(rest) or word
        if word.endswith(".py"):
            return word
        if name in _SHELLS and rest:
            return name if rest[0].startswith("-") else rest[0]
    return command[0] if command else ""


def _launched(words: Sequence[str]) -> str:
    """The script or the module that a launcher starts; empty where neither is seen."""
    for at, word in enumerate(words):
        if word in ("-m", "--module") and words[at + 1 :] and words[at + 1] not in _LAUNCHERS:
            return words[at + 1]
        if word.endswith(".py"):
            return word
    return ""
