"""Plays a script in a process of its own, of the Python that ran the program, and reads what came of it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gobrrr.rehearsal.script import Played, Script

SECONDS, OF_A_FINDING = 10.0, 3.0
"""For all scenes, the start of the process included, and for those of one finding."""
GRACE = 0.5
"""Share of its seconds after which a process that hangs in one call is ended; what it has said until then counts."""
FEWEST = 2.0
"""Seconds that are too few to start the process in and play anything."""
# As for the ceilings: the other interpreter's own packages come first, and the current folder is not looked into.
_START = (
    "import sys; sys.path[:] = [p for p in sys.path if p] + [sys.argv.pop(1)]; "
    "from gobrrr.rehearsal.stage import main; sys.exit(main())"
)


def perform(script: Script, interpreter: str) -> dict[str, Played]:
    """What was played, by remedy; a remedy that is missing was not. Nothing here raises: a rehearsal is a bonus."""
    if script.seconds < FEWEST:
        return {}
    root = str(Path(__file__).resolve().parents[2])
    try:
        process = subprocess.Popen(
            [interpreter, "-c", _START, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return {}
    with process:
        try:
            said, _ = process.communicate(msgspec.json.encode(script), (1 + GRACE) * script.seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
        except BaseException:
            process.kill()
            raise
    return {played.remedy: played for line in said.splitlines() if (played := _read(line)) is not None}


def _read(line: bytes) -> Played | None:
    try:
        return msgspec.json.decode(line, type=Played)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # a line that was cut off, or somebody else's


def remedies(findings: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """Seconds for each remedy of the findings that call for them, in their order; the first call counts."""
    from gobrrr.rehearsal.scenes import MAKERS

    found: dict[str, float] = {}
    for names in findings:
        fresh = [name for name in names if name in MAKERS and name not in found]
        found |= {name: OF_A_FINDING / len(fresh) for name in fresh}
    return found
