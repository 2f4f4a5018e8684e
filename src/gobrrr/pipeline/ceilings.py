"""Find the ceilings that a recording is held against: its torch's, never measured by starting what a file names.

A recording says which Python ran its program. It may come from a stranger, so that Python is not started: only this one
is, and one that the user has just typed. Ceilings of any other are measured when they are asked for.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gobrrr.errors import GobrrrError
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.measure import store
from gobrrr.machine.model.machine import UNKNOWN, Machine
from gobrrr.recording.run_folder.run import Recording
from gobrrr.system import files

_PYTHON = re.compile(r"python(\d+(\.\d+)*t?)?(\.exe)?")
_FIRST_LINE = re.compile(rb"#!\s*(\S+)")
_MOST_OF_A_LINE = 512  # bytes; proposed: twice what Linux reads (BINPRM_BUF_SIZE); a longer path settles it


def ceilings(recording: Recording, interpreter: str = sys.executable) -> Machine:
    """This machine's ceilings for the recording's torch: measured once with `interpreter`, where that has it, or kept.

    Where neither has it, those of `interpreter`'s torch, with a line that says so; UNKNOWN where it has no torch.
    """
    wanted = recording.start.torch
    try:
        here = store.torch_version(interpreter)
    except GobrrrError:
        here = ""
    if here != wanted and (found := store.kept(wanted)) is not None:
        return found
    if here != wanted:
        told = f"ceilings are those of torch {here}" if here else "there are no ceilings to hold it against"
        say(f"this ran with torch {wanted or 'of an unknown version'}: {told}; "
            "gobrrr machine --python PATH measures another Python's")  # fmt: skip
    return store.load_or_measure(interpreter=interpreter, notify=say) if here else UNKNOWN


def proven(profiled: Profiled, interpreter: str = sys.executable) -> Machine:
    """The same, each at least what the recorded program itself reached."""
    from gobrrr.ledger.ops.raised_ceilings import raised

    recording = profiled.recording
    precision = next((f["settings"].get("matmul_precision") for f in recording.raw_facts if f.get("settings")), None)
    return raised(ceilings(recording, interpreter), profiled, precision)


def interpreter(command: Sequence[str]) -> str:
    """The Python of a command that the user has typed: its first word, or what the first line of that script names."""
    program = shutil.which(command[0]) if command else None
    if program is None:
        return sys.executable
    if _PYTHON.fullmatch(Path(program).name):
        return program
    try:
        first = _FIRST_LINE.match(files.read(Path(program), _MOST_OF_A_LINE))
    except OSError:
        return sys.executable
    named = Path(first[1].decode(errors="replace")) if first else Path()
    return str(named) if named.is_absolute() and _PYTHON.fullmatch(named.name) else sys.executable


def say(text: str) -> None:
    """One line of gobrrr's own on stderr; what it quotes may come from a file."""
    from gobrrr.system.escape import plain

    print(f"gobrrr: {plain(text)}", file=sys.stderr)
