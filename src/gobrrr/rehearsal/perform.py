"""Run a rehearsal in a process of its own, with the Python that ran the program, and read its timings."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import msgspec

from gobrrr.rehearsal.script import Played, Script
from gobrrr.rehearsal.stage import GRACE

SECONDS, OF_A_FINDING = 10.0, 3.0
"""For all scenes, the start of the process included, and for those of one finding."""
FEWEST = 2.0
"""Seconds that are too few to start the process in and play anything."""
# Started without site (-S), which then comes without the user's sitecustomize: that is the program's, and has run.
# Where torch is found by it alone (some distributions set their paths there) it runs all the same. As for the ceilings:
# the other interpreter's own packages come first, and the current folder is not looked into.
_START = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; import importlib.util, site; "
    "custom = site.execsitecustomize; site.execsitecustomize = site.execusercustomize = lambda: None; site.main(); "
    "importlib.util.find_spec('torch') or custom(); sys.path.append(sys.argv.pop(1)); "
    "from gobrrr.rehearsal.stage import main; sys.exit(main())"
)


def perform(script: Script, interpreter: str) -> dict[str, Played]:
    """Return the result of every scene, by remedy. Raise nothing: a rehearsal is a bonus."""
    if script.seconds < FEWEST:
        return _each(script, {}, "there was no time for it")
    root = str(Path(__file__).resolve().parents[2])
    try:
        process = subprocess.Popen(
            [interpreter, "-S", "-c", _START, root, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        return _each(script, {}, f"{interpreter} does not start: {error.strerror}")
    with process:
        try:
            said, _ = process.communicate(msgspec.json.encode(script), (1 + GRACE) * script.seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
        except BaseException:
            process.kill()
            raise
    found: dict[str, Played] = {}
    for line in said.splitlines():
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # cut off, or somebody else's
            played = msgspec.json.decode(line, type=Played)
            found[played.remedy] = played
    return _each(script, found, found[""].why if "" in found else _ended(process.returncode))


def _each(script: Script, found: dict[str, Played], why_not: str) -> dict[str, Played]:
    return {s.remedy: found.get(s.remedy, Played(s.remedy, why=why_not)) for s in script.scenes}


def _ended(code: int) -> str:
    """Say how a process ended that has not said what came of a scene."""
    if code in (-signal.SIGALRM, -signal.SIGKILL):
        return "its process was ended: the time was up, or the memory"
    return f"its process ended with {code}" if code >= 0 else f"its process was ended by signal {-code}"
