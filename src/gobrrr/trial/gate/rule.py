"""A gate as its user writes it, 'accuracy >= -0.5%', and how the measure's value is read of a whole run."""

from __future__ import annotations

import math
import re
from collections import deque
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.system import files
from gobrrr.system.escape import plain

EXAMPLES = "for example --accept 'accuracy >= -0.5%' or --accept 'perplexity <= +1%'"
MOST_BYTES = 16 << 20
"""Bytes of a JSON file, and of the end of what is printed, in which a value is looked for."""
WIDEST = 0.5
"""Share of the value from which an allowance is taken for a slip: 0.5 of an accuracy of 0.97 was meant as points."""
_RULE = re.compile(r"\s*(\S.*?)\s*(>=|<=)\s*([-+]?\d*\.?\d+)\s*(%?)\s*")
_FILE = re.compile(r"([\w./ -]+\.json):([\w./@ -]+)")
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b)"


Value = tuple[float, bool]
"""Value of a measure, and whether it was written with %."""


class Gate(NamedTuple):
    """How far a measure may move."""

    text: str
    name: str
    falls: bool
    """Less of it is better: <=."""
    allowed: float
    relative: bool
    """`allowed` is in % of the program's own value."""
    measure: str = ""
    """A regular expression with one group, or file.json:key.path; empty: the number behind its name."""

    def value(self, printed: str, folder: Path, began_ns: int) -> Value:
        """Read its value after a run. Raises ValueError, with the reason in some words: no such number, none at all."""
        if file := _FILE.fullmatch(self.measure):
            found = _in_file(folder, file[1], file[2], began_ns), False
        else:
            named = rf"(?i)(?<!\w){re.escape(self.name)}[\"']?(?:\s*[:=]\s*|\s+){_NUMBER}(?!\w|\.\w)"
            found = _last(re.compile(self.measure or named), printed, self.name)
        if not math.isfinite(found[0]):
            raise ValueError(f"{self.name} is {found[0]}")
        return found


def parse(text: str, measure: str = "") -> Gate:
    """Return the gate of such a text. Raises GobrrrError."""
    shown, where = plain(text)[:60], f"--measure {plain(measure)[:60]!r}"
    if (found := _RULE.fullmatch(text)) is None:
        raise GobrrrError(f"cannot read the gate {shown!r}", EXAMPLES)
    allowed, falls = float(found[3]), found[2] == "<="
    if allowed < 0 if falls else (allowed > 0 or found[3].startswith("+")):
        raise GobrrrError(f"the gate {shown!r} must say how far the measure may move, not its value", EXAMPLES)
    if file := _FILE.fullmatch(measure):
        path = PurePosixPath(file[1])
        if path.is_absolute() or ".." in path.parts:
            raise GobrrrError(f"{where} is outside the program's folder", "name a file in it")
    elif measure:
        try:
            groups = re.compile(measure).groups
        except (re.error, RecursionError, OverflowError) as error:
            raise GobrrrError(f"{where} is no regular expression: {error}", "acc=(.*)") from None
        if groups != 1:
            raise GobrrrError(f"{where} has {groups} groups", "put one around the number")
    return Gate(text.strip(), found[1], falls, allowed, bool(found[4]), measure)


def _last(pattern: re.Pattern[str], printed: str, name: str) -> Value:
    if not (found := deque(pattern.finditer(printed), maxlen=1)):
        raise ValueError(f"no number is printed as {plain(name)[:40]}")
    said = (found[0][1] or "").strip()
    percent = said.endswith("%") or printed[found[0].end(1) : found[0].end(1) + 9].lstrip(" ").startswith("%")
    try:
        return float(said.rstrip("% ")), percent
    except ValueError:
        raise ValueError(f"{plain(said)[:40]!r} is no number") from None


def _in_file(folder: Path, name: str, keys: str, began_ns: int) -> float:
    """A number in a JSON file that this run wrote."""
    try:
        if (folder / name).stat().st_mtime_ns <= began_ns:
            raise ValueError(f"the run does not write {name}")
        data = files.read(folder / name, MOST_BYTES)
        found: Any = msgspec.json.decode(data)  # what was cut off is none
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError(f"{name} cannot be read as JSON") from None
    try:
        for key in keys.split("."):
            found = found[int(key)] if isinstance(found, list) else found[key]
    except (LookupError, TypeError, ValueError):
        raise ValueError(f"{name} has no {keys}") from None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise ValueError(f"{keys} in {name} is no number")
    return float(found) if abs(found) < 1e300 else math.inf
