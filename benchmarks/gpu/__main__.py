"""The scoreboard of what a GPU must prove, in parts of at most 9 minutes, by worth.

    python -m benchmarks.gpu [--part 1 2 ...] [--row NAME ...] [--list] [--board] [--minutes 9] [--anew [NAME ...]]
                             [--results DIR] [--device cuda|cpu] [--tiny]

Without --part all parts, one after the other; --row does these rows alone. A row is kept in .gobrrr/gpu/ as soon as it
is done, and the part's result with it; a call that is cut off leaves both, and the next one goes on. On a fresh copy,
rows are those of the results that lie there. --anew forgets these rows, or all. The result of a part goes to
benchmarks/results/gpu-PART-DATE-DEVICE.json; of a CPU or a tiny size, which only show that everything works, to
.gobrrr/gpu/.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import parts, rows, scoreboard, table
from benchmarks.gpu.setting import KEPT, ROOT, Setting, there

RESULTS = ROOT / "benchmarks" / "results"
SCHEMA = "gobrrr.gpu/1"
SLOWER = 6.0
"""Times that a CPU which others use may be slower than is expected of it."""


def main(words: Sequence[str] | None = None) -> int:
    """Do the parts; 1 where a row failed or was left out, 2 where the call was ended."""
    args = _arguments(words)
    if args.device == "cuda" and not there()["count"] and not args.list:
        print("no GPU here: nothing was done (--device cpu --tiny shows that all of it works)")
        return 0
    setting = Setting(args.device, args.tiny)
    if args.list:
        print("\n".join(f"{part:2d}  {work.seconds:4.0f} s  {work.name}" for part in args.part
                        for work in parts.works(part, setting)))  # fmt: skip
        return 0
    unknown = {*(args.row or ())} - {work.name for work in parts.every(setting)}
    if unknown:
        print(f"no such row: {', '.join(sorted(unknown))} (--list has all)")
        return 2
    setting.prepare()
    book = KEPT / "rows.jsonl"
    _seeded(book, setting.on)
    named = {part: parts.works(part, setting) for part in args.part}
    if args.row:
        named = {0: [work for work in parts.every(setting) if work.name in args.row]}
    named = {} if args.board else named
    undone = False
    try:
        for part, works in named.items():
            done = _part(part, works, book, setting, args)
            undone |= any("failed" in row or "left_out" in row for row in done)
    except rows.Ended:
        print("\nended: what was done until now is kept, the next call goes on", flush=True)
        return 2
    finally:
        _board(book, setting)
    return 1 if undone else 0


def _part(part: int, works: list[rows.Work], book: Path, setting: Setting, args: argparse.Namespace) -> list[rows.Row]:
    """Do one part, write it after each row, print it."""
    if args.anew is not None:
        rows.forget(book, args.anew or [work.name for work in works])
    title = parts.TITLES.get(part, "rows by name")
    found: dict[str, Any] = {"schema": SCHEMA, "part": part, "title": title, **setting.head(), "rows": []}
    folder = (args.results or RESULTS) if setting.real else KEPT
    folder.mkdir(parents=True, exist_ok=True)
    device = re.sub("[^a-z0-9]+", "-", setting.name.lower()).strip("-")
    file = folder / f"gpu-{part or 'rows'}-{found['date']}-{device}.json"

    def write(done: list[rows.Row]) -> None:
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps({**found, "rows": done}, indent=1) + "\n", encoding="utf-8")
        draft.replace(file)

    patience = rows.PATIENCE * (1 if setting.real else SLOWER)
    done = rows.through(works, book, setting.on, args.minutes * 60, _say, write, patience)
    print(f"{table.table({**found, 'rows': done})}\nin {file}\n", flush=True)
    return done


def _board(book: Path, setting: Setting) -> None:
    """All rows of this device so far against the bars."""
    kept = list(rows.read(book, setting.on)[0].values())
    works = parts.every(setting)
    failed = [row["name"] for row in kept if "failed" in row]
    lines = [f"# Scoreboard: {setting.on}", ""]
    if not setting.real:
        lines += ["A CPU, or a tiny size: that rows ran is all that this shows, no figure of theirs counts."]
    lines += [f"{len(kept) - len(failed)} of {len(works)} rows ran, {len(failed)} failed {', '.join(failed)}", ""]
    print("\n".join([*lines, *scoreboard.told(kept)]), flush=True)


def _seeded(book: Path, on: str) -> None:
    """A book of the rows in the results that lie here, where there is no book yet."""
    if book.exists():
        return
    for file in sorted(RESULTS.glob("gpu-*.json")):
        with contextlib.suppress(ValueError, OSError):
            found = json.loads(file.read_text(encoding="utf-8"))
            for row in found["rows"] if found.get("schema") == SCHEMA else ():
                if row.get("on") == on and "failed" not in row:
                    rows.keep(book, row)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = list(parts.TITLES)
    parser.add_argument("--part", type=int, nargs="+", choices=every, default=every, metavar="N")
    parser.add_argument("--row", nargs="+", metavar="NAME", help="these rows alone, whichever part they are of")
    parser.add_argument("--list", action="store_true", help="the rows and the seconds that each is given")
    parser.add_argument("--board", action="store_true", help="the bars, of the rows that were done")
    parser.add_argument("--minutes", type=float, default=rows.BUDGET_S / 60, help="of each part (9)")
    parser.add_argument("--anew", nargs="*", metavar="NAME", help="forget these rows, or all of the parts")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where the parts' results go")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="as small as it goes; nothing that it says is a figure")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
