"""A gate as its user writes it, 'accuracy >= -0.5%', and how the measure's value is read of a whole run."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
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
_FILE = re.compile(r"([\w./ -]+\.(json|csv)):([\w./@ -]+)")
_INSIDE = re.compile(r"log:[^()]+|[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b)"

_GROUPED = re.compile(r"[-+]?(?:\d{1,3}[,'\u2019 \xa0\u2009\u202f]\d{3}(?!\d)|\d+(?:\.\d{3})*,\d+(?!\.?\d)|\d+_\d)\S*")
"""A number with separators: 1,024.00 or 97,25, of which what is in front would be read."""

_BEFORE = re.compile(r"((?:[\w-]*[^\W\d_][\w-]*)?)[ \t]*\Z")
"""The word in front of a measure's name: train, Top-5."""
_MANY = re.compile(r"-\w|[ \t]*(?:/|of\b)[ \t]*\d")
"""Behind a number that may not be the measure: 10-fold, 456/500, 3 of 5."""
_COUNT = re.compile(r"[\"']?[ \t]+[-+]?\d+(?![\d.])(?![eE][-+]?\d)[^\r\n,;|(\d]*[^\r\n,;|(\d.][\d.]")
"""A whole number that stands behind a name without a colon, and another one behind it: 'accuracy 95% CI: 87.5'."""
_SAID = re.compile(rf"(?<![\w.])([^\W\d][\w/.-]*)[\"']?[ \t]*[:= \t][ \t]*{_NUMBER}")
MOST_SHOWN = 2_000
"""Characters of what is printed in which the names of other numbers are sought."""

_LESS = {"loss", "perplexity", "ppl", "wer", "cer", "error", "err", "mse", "rmse", "mae", "nll", "fid"}
_MORE = {"accuracy", "acc", "f1", "auc", "auroc", "bleu", "rouge", "miou", "iou", "map", "recall", "top1"}
"""Words in the names of measures of which less, or more, is better wherever they are used."""

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
    """A regular expression with one group, file.json:key.path, file.csv:column, module:function, or log:key; empty: the
    number behind its name."""

    @property
    def inside(self) -> bool:
        """Whether its value is found in the program's process."""
        return not _FILE.fullmatch(self.measure) and bool(_INSIDE.fullmatch(self.measure))

    def value(
        self, printed: str, folder: Path, began_ns: int, measured: Mapping[tuple[str, str], float | str] | None = None,
        before: Path | None = None,
    ) -> Value:  # fmt: skip
        """Read its value after a run. Raises ValueError, with the reason in some words: no such number, none at all.
        `measured`: in the process, by name and measure; a text says why not. `before`: the folder that was copied."""
        if self.inside:
            inside = (measured or {}).get((self.name, self.measure), f"{self.measure} was not measured")
            if isinstance(inside, str):
                raise ValueError(plain(inside)[:160])
            found = inside, False
        elif file := _FILE.fullmatch(self.measure):
            place = folder, file[1], file[3], began_ns
            found = _in_table(*place, before) if file[2] == "csv" else _in_file(*place), False
        else:
            behind = r"(?!(?!_\d)\w|\.\w|[ \t]*:)"  # 'accuracy 1: 0.97' is of a class
            named = rf"(?i)(?<![\w/.-]){re.escape(self.name)}[\"']?(?:[ \t]*[:=][ \t]*|[ \t]+){_NUMBER}{behind}"
            found = _last(re.compile(self.measure or named), printed, self.name, not self.measure)
        if not math.isfinite(found[0]):
            raise ValueError(f"{self.name} is {found[0]}")
        return found


def parse(text: str, measure: str = "") -> Gate:
    """Return the gate of such a text. Raises GobrrrError."""
    shown, where = plain(text)[:60], f"--measure {plain(measure)[:60]!r}"
    if (found := _RULE.fullmatch(text)) is None:
        raise GobrrrError(f"cannot read the gate {shown!r}", EXAMPLES)
    name, allowed, falls = found[1], float(found[3]), found[2] == "<="
    if allowed < 0 if falls else (allowed > 0 or found[3].startswith("+")):
        raise GobrrrError(f"the gate {shown!r} must say how much may be lost: no gain, and no value to reach", EXAMPLES)
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    if words & (_MORE if falls else _LESS) and not words & (_LESS if falls else _MORE):
        turned = f"{'more' if falls else 'less'} of it is better, so {shown!r} lets it become anything worse"
        raise GobrrrError(f"{plain(name)[:40]}: {turned}", f"turn it, or name it otherwise, with --measure: {EXAMPLES}")
    if file := _FILE.fullmatch(measure):
        path = PurePosixPath(file[1])
        if path.is_absolute() or ".." in path.parts:
            raise GobrrrError(f"{where} is outside the program's folder", "name a file in it")
    elif measure and not _INSIDE.fullmatch(measure):
        try:
            groups = re.compile(measure).groups
        except (re.error, RecursionError, OverflowError) as error:
            raise GobrrrError(f"{where} is no regular expression: {error}", "acc=(.*)") from None
        if groups != 1:
            raise GobrrrError(f"{where} has {groups} groups", "put one around the number")
    return Gate(text.strip(), name, falls, allowed, bool(found[4]), measure)


def _last(pattern: re.Pattern[str], printed: str, name: str, by_name: bool) -> Value:
    """The last number that is printed so; one that was found by its name alone must leave no doubt."""
    found, before = None, set[str]()
    for found in pattern.finditer(printed):
        before.add(_BEFORE.findall(printed[max(0, found.start() - 40) : found.start()])[0].lower())
    if found is None:
        others = dict.fromkeys(each[1] for each in _SAID.finditer(printed[-MOST_SHOWN:]))
        told = f" (there are {plain(', '.join([*others][-3:]))[:60]})" if by_name and others else ""
        raise ValueError(f"no number is printed as {plain(name)[:40]}{told}")
    said = (found[1] or "").strip()
    if grouped := _GROUPED.match(printed, found.start(1)):
        raise ValueError(f"{plain(grouped[0])[:40]} has separators: print it as 1024.5, or name a file with --measure")
    if by_name and (doubt := _doubt(found, name, before)):
        raise ValueError(f"{plain(name)[:40]}: {plain(doubt)}")
    percent = said.endswith("%") or printed[found.end(1) : found.end(1) + 9].lstrip(" ").startswith("%")
    try:
        return float(said.rstrip("% ")), percent
    except ValueError:
        raise ValueError(f"{plain(said)[:40]!r} is no number") from None


def _doubt(found: re.Match[str], name: str, before: set[str]) -> str:
    """Say why a number that stands behind a name may not be the measure; empty where nothing speaks against it.
    `before`: the words in front of the name, wherever it is printed."""
    if len(before) > 1:
        return f"it is printed as {' and '.join(repr(f'{each} {name}'.strip()) for each in sorted(before)[:3])}"
    rest = found.string[found.end(1) :].partition("\n")[0]
    line, many = found.string[found.start() : found.end(1)] + rest, _MANY.match(rest)
    is_part = many is not None and (many[0][0] == "-" or found[1].isdecimal())
    if is_part or _COUNT.match(line, len(name)):
        return f"{line[:60]!r} may be read in several ways: print one number behind '{name}:'"
    return ""


def _in_file(folder: Path, name: str, keys: str, began_ns: int) -> float:
    """A number in a JSON file that this run wrote."""
    try:
        found: Any = msgspec.json.decode(_written(folder, name, began_ns))  # what was cut off is none
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


def _in_table(folder: Path, name: str, column: str, began_ns: int, before: Path | None) -> float:
    """The last number of a column in a CSV file that this run wrote, or went on with: loggers leave cells empty."""
    try:
        text = _written(folder, name, began_ns)
        old = _written(before, name, 0) if before is not None and (before / name).is_file() else b""
        rows, known = (list(csv.DictReader(each.decode().splitlines())) for each in (text, old))
        earlier = len(known) if text != old and text.startswith(old) else 0  # the same bytes were written anew
        said = [row[column] for row in rows[earlier:] if row.get(column)]
    except (OSError, UnicodeDecodeError, csv.Error):
        raise ValueError(f"{name} cannot be read as CSV") from None
    if not said:
        raise ValueError(f"{name} has no {column}")
    try:
        return float(said[-1])
    except ValueError:
        raise ValueError(f"{column} in {name} is no number") from None


def _written(folder: Path, name: str, began_ns: int) -> bytes:
    """Read a file that this run wrote. Raises OSError, ValueError where it did not."""
    if (folder / name).stat().st_mtime_ns <= began_ns:
        raise ValueError(f"the run does not write {name}")
    return files.read(folder / name, MOST_BYTES)
