"""Programs of others in copies of their own, whose batch size `gobrrr fit` and `gobrrr sweep` vary: the frame of
benchmarks.fits and benchmarks.sweeps."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.stamp import stamp
from gobrrr.errors import GobrrrError
from gobrrr.trial.edit import setting

HERE = Path(__file__).parent
STEPS = ("--steps", "1000000")
Program = tuple[str, tuple[str, ...]]
"""Path below this folder, and its words."""
Row = Callable[[Path, list[str], setting.Setting, float], dict[str, Any]]
"""Figures of a program: given its copy's folder, the command, the batch size found in it, and seconds."""


def measured(
    description: str | None, name: str, programs: Sequence[Program], row: Row,
    bars: Callable[[list[dict[str, Any]]], dict[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """Measure the programs that the command line names, print a row of each, write and return their bars."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--json", type=Path, default=HERE / "results" / f"{name}-{stamp()['date']}.json")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for path, words in programs:
        if args.only and not any(word in path for word in args.only):
            continue
        program = HERE / path
        own = program.parent.name + "/" if program.stem in ("train", "program") else ""
        with _copied(program) as source:
            command = [sys.executable, program.name, *words]
            try:
                found = row(source, command, setting.find("batch", command, source), 60 * args.minutes)
            except (GobrrrError, ValueError, KeyError) as error:
                found = {"why": str(error)}
        rows.append({"name": own + program.stem, **found})
        print("  ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
        told = {**stamp(), "minutes": args.minutes, "bars": bars(rows), "programs": rows}
        args.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    found = bars(rows)
    print(found)
    return found


@contextlib.contextmanager
def _copied(program: Path) -> Iterator[Path]:
    source = Path(tempfile.mkdtemp(prefix="gobrrr-varied-"))
    for file in program.resolve().parent.iterdir():
        if file.is_file():
            shutil.copy2(file, source)
    try:
        yield source
    finally:
        shutil.rmtree(source, ignore_errors=True)
