"""Options that several verbs share: numbers, what the machine costs, what to mask, where trials may write."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.errors import GobrrrError

if TYPE_CHECKING:
    from gobrrr.trial.edit.program_edit import ProgramEdit
    from gobrrr.trial.sandbox.limits import Limits

_TIMES = {"us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "min": 60e9}
_SIZES = {"B": 1} | {
    f"{letter}{unit}": base**power
    for power, letter in enumerate("KMGT", 1)
    for unit, base in (("", 1000), ("B", 1000), ("I", 1024), ("IB", 1024))
}
"""Bytes of each unit, in capitals: KB, KIB, ..."""
OTHERS = ("deepspeed", "horovodrun", "mpirun", "mpiexec")
"""Launchers whose jobs no arm can be."""
MOST = 1e9  # of a number of minutes, say: more is no number of anything


def more_than_zero(text: str) -> float:
    """A number above 0, and no endless one."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number") from None
    if not 0 < value <= MOST:
        raise argparse.ArgumentTypeError(f"must be more than 0 and at most {MOST:,.0f}, not {text[:40]}")
    return value


def at_least_one(text: str) -> int:
    """A whole number from 1 on."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text[:40]}")
    return value


def duration(text: str) -> int:
    """'50ms' in ns."""
    return _amount(text, _TIMES, "50ms, 0.2s")


def size(text: str) -> int:
    """'24GiB' in bytes."""
    return _amount(text.upper(), _SIZES, "24GiB, 80GB")


def _amount(text: str, units: Mapping[str, float], examples: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)", text.strip())
    value = float(match[1]) * units.get(match[2], 0) if match is not None else 0.0
    if not 0.5 < value < 2**63:
        raise argparse.ArgumentTypeError(f"cannot read {text[:40]!r}: {examples}")
    return round(value)


def add_folder(parser: argparse.ArgumentParser, what: str) -> None:
    """Add -o of a verb that writes a folder."""
    where = f"folder for {what} (default .gobrrr/<run>)"
    parser.add_argument("-o", dest="folder", type=_folder, metavar="DIR", help=where)


def _folder(name: str) -> str:
    """No name of a report's file: whoever writes one expects a file there, as after -o of `gobrrr report`."""
    from gobrrr.report.forms import formats

    if formats.by_suffix(name, ""):
        afterwards = f"gobrrr report -o {name} writes a page afterwards"
        raise argparse.ArgumentTypeError(f"{name} would be a folder here; {afterwards}")
    return name


def add_minutes(parser: argparse.ArgumentParser, minutes: float) -> None:
    """Add --minutes; `minutes` where the user gives none."""
    parser.add_argument(
        "--minutes", type=more_than_zero, default=minutes, metavar="M",
        help=f"wall time to spend, all in all ({minutes:g})",
    )  # fmt: skip


PRICE_VARIABLE = "GOBRRR_PRICE_PER_HOUR"


def add_price(parser: argparse.ArgumentParser) -> None:
    """Add --price-per-hour."""
    parser.add_argument(
        "--price-per-hour", type=more_than_zero, metavar="X",
        help=f"also say what it costs in money, at X per hour (or {PRICE_VARIABLE})",
    )  # fmt: skip


def price(args: argparse.Namespace) -> float | None:
    """The price, None where there is none. Raises GobrrrError where the variable holds no price."""
    if args.price_per_hour is not None:
        return float(args.price_per_hour)
    text = os.environ.get(PRICE_VARIABLE, "").strip()
    try:
        return more_than_zero(text) if text else None
    except argparse.ArgumentTypeError as error:
        raise GobrrrError(f"{PRICE_VARIABLE}: {error}", f"{PRICE_VARIABLE}=2.50, or unset it") from None


def add_measure(parser: argparse.ArgumentParser) -> None:
    """Add --measure, which may be given more than once."""
    parser.add_argument(
        "--measure", action="append", default=[], metavar="WHERE",
        help="where a gate's value is read, of each in turn: a regular expression with one group over what is printed, "
        "file.json:key.path, file.csv:column, log:key of a logger, or module:function (model, batch) of yours, run in "
        "evaluation (default: the number behind its name)",
    )  # fmt: skip


def add_redact(parser: argparse.ArgumentParser) -> None:
    """Add --redact, which may be given more than once."""
    parser.add_argument(
        "--redact", type=_pattern, action="append", default=[], metavar="PATTERN",
        help="mask what this regular expression finds, beside what looks like a key or a password anyway",
    )  # fmt: skip


def _pattern(text: str) -> re.Pattern[str]:
    try:
        found = re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    if found.search(""):
        raise argparse.ArgumentTypeError(f"{text!r} finds the empty string everywhere")
    return found


def add_writes(parser: argparse.ArgumentParser) -> None:
    """Add --allow-writes and --unprotected."""
    parser.add_argument(
        "--allow-writes", dest="allowed", action="append", type=Path, default=[], metavar="DIR",
        help="let the program write below DIR in trials; may be given again (else: into its own copy alone)",
    )  # fmt: skip
    parser.add_argument(
        "--unprotected", action="store_true", help="do not keep trials from writing outside their own copy"
    )


def write_limits(args: argparse.Namespace) -> Limits:
    """Return the limits on writing that were asked for. Raises GobrrrError for a folder that is not there."""
    from gobrrr.trial.sandbox.limits import Limits

    for place in args.allowed:
        if not place.exists():
            raise GobrrrError(f"--allow-writes {place}: there is no such folder", "make it first")
    return Limits(tuple(place.resolve() for place in args.allowed), args.unprotected)


def patches(files: Sequence[str], source: Path) -> tuple[ProgramEdit, ...]:
    """Return the edits of --patch, one for each file; - is the standard input. Raises GobrrrError."""
    from gobrrr.trial.edit import reading

    if files.count("-") > 1:
        raise GobrrrError("--patch - reads the standard input, which can be read once", "give the others as files")
    return tuple(reading.from_patch("-" if file == "-" else Path(file), source) for file in files)


def check_ranks(command: Sequence[str], verb: str = "tune", allowed: Collection[str] = ()) -> None:
    """Raises GobrrrError for a program of several ranks, but for one whose launcher is `allowed`: nothing was run
    yet."""
    from gobrrr.trial.arm.ranks import JOBS, launcher, world_size

    found = launcher(command, (*JOBS, *OTHERS))
    if found in allowed:
        return
    if found or world_size() > 1:
        why = f"{found or 'WORLD_SIZE'} starts several ranks, and gobrrr {verb} measures programs of one process"
        by_torchrun = f"start its ranks by torchrun: gobrrr {verb} -- torchrun --nproc-per-node 2 train.py"
        one = f"{verb} one rank's program by itself: gobrrr {verb} train.py"
        raise GobrrrError(why, by_torchrun if allowed else one)
