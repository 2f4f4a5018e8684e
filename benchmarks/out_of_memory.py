"""Does gobrrr name what a program ran out of memory for, and does its first advice make it fit?

    python -m benchmarks.out_of_memory [FOLDER] [--only NAME ...] [--json FILE]

Each program of benchmarks/memory_programs says in its first line its limit (data: RLIMIT_DATA, as: RLIMIT_AS), the
largest holder and the advice that its author would give first. `# dies` marks the line, `# fix[NAME]: code` stands
for a line as that advice has it, `# unless: NAMES` marks lines that it replaces. The program is run under its limit by
`gobrrr run`; then as the first advice has it, plainly, under the same limit: it must end with 0.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.stamp import stamp
from gobrrr.pipeline.out_of_memory import died_of
from gobrrr.rules.memory.out_of_memory import Diagnosis

HERE = Path(__file__).parent
SECONDS = 240.0
_HEAD = re.compile(r"# limit: (\w+) ([\d.]+)GiB \| holder: ([\w ,]+) \| first: ([\w,-]+)")
_FIX, _UNLESS = re.compile(r"# (?:dies, )?fix\[([\w-]+)\]: (.*)"), re.compile(r"# (?:dies, )?unless: ([\w ,-]+)")


def main() -> int:
    """Run all, print the table; 0 where all bars are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "memory_programs")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--json", type=Path, default=HERE / "results" / f"out-of-memory-{stamp()['date']}.json")
    args = parser.parse_args()
    rows = []
    for program in sorted(args.folder.glob("*.py")):
        if not args.only or program.stem in args.only:
            rows.append(row(program))
            print("  ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
    bars = {name: sum(bool(row[name]) for row in rows) for name in ("line", "holder", "first", "fits")}
    args.json.write_text(
        json.dumps({"schema": "gobrrr.out-of-memory/1", **stamp(), "bars": bars, "programs": rows}, indent=1)
    )
    print(f"of {len(rows)}: " + ", ".join(f"{name} {count}" for name, count in bars.items()))
    return 0 if all(count >= 0.8 * len(rows) for count in bars.values()) else 1


def row(program: Path) -> dict[str, Any]:
    """What was told of one program, held against its first line."""
    head = _HEAD.match(program.read_text(encoding="utf-8"))
    if head is None:
        raise SystemExit(f"{program} has no first line with its truth")
    kind, limit, holders, first = head.groups()
    text = program.read_text(encoding="utf-8").splitlines()
    lines = {at for at, line in enumerate(text, 1) if "# dies" in line}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        watched = ["-m", "gobrrr", "run", "--no-rehearsal", "-o", str(place / "run"), str(program)]
        code = limited([sys.executable, *watched], kind, float(limit), place)
        died = died_of(place / "run", code)
        if died is None:
            return {"name": program.stem, "line": False, "holder": False, "first": False, "fits": False, "told": code}
        oom = died.failed
        told = {oom.lines[0].line} if oom.lines else set()
        way = died.ways[0] if died.ways else None
        mended = place / program.name
        mended.write_text(fixed(program.read_text(encoding="utf-8"), way.name if way else "", died), encoding="utf-8")
        return {
            "name": program.stem,
            "line": bool(told & lines),
            "holder": next(iter(oom.roles()), "") in holders.split(","),
            "first": bool(way and way.name in first.split(",")),
            "fits": bool(way) and limited([sys.executable, str(mended)], kind, float(limit), place) == 0,
            "told": f"{died.sentence} | {died.reason} | {way.name if way else ''}: {way.what if way else ''}",
        }


def fixed(text: str, name: str, died: Diagnosis) -> str:
    """The program as one advice has it; unchanged where its author foresaw none of that name."""
    splits = re.match(r"(\d+) micro-batches", next((way.what for way in died.ways if way.name == name), ""))
    kept = []
    for line in text.splitlines():
        fix, unless = _FIX.search(line), _UNLESS.search(line)
        if fix and fix[1] == name:
            indent = re.match(r"\s*", line)[0]  # type: ignore[index]
            kept.append(indent + fix[2].replace("{splits}", splits[1] if splits else "2"))
        elif not (unless and name in unless[1].split(", ")):
            kept.append(line)
    return "\n".join(kept) + "\n"


def limited(command: list[str], kind: str, gib: float, folder: Path) -> int:
    """The exit code of a command under a limit of its memory."""
    which = resource.RLIMIT_DATA if kind == "data" else resource.RLIMIT_AS
    size = int(gib * (1 << 30))
    with (folder / "output").open("ab") as out:
        try:
            return subprocess.run(command, timeout=SECONDS, stdout=out, stderr=out, check=False,
                                  preexec_fn=partial(resource.setrlimit, which, (size, size))).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return 124


if __name__ == "__main__":
    sys.exit(main())
