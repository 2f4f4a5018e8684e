"""All that waits for a GPU, in parts of at most 9 minutes.

    python -m benchmarks.gpu [--part 1 2 ...] [--minutes 9] [--anew [NAME ...]] [--device cuda|cpu] [--tiny]

Without --part all parts, one after the other. A row is kept in .gobrrr/gpu/ as soon as it is done; what a part had no
time for is told as not run, and the next call goes on with it. --anew forgets these rows, or all. The result of a part
goes to benchmarks/results/gpu-PART-DATE.json; of a CPU or a tiny size, which only show that everything works, to
.gobrrr/gpu/.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import parts, planting, rows, table
from benchmarks.gpu.setting import ROOT, Setting

KEPT = Path(".gobrrr") / "gpu"


def main(words: Sequence[str] | None = None) -> int:
    """Do the parts; 1 where a row failed or was left out."""
    args = _arguments(words)
    if args.device == "cuda" and not torch.cuda.is_available():
        print("no GPU here: nothing was done (--device cpu --tiny shows that all of it works)")
        return 0
    setting = Setting(args.device, args.tiny)
    setting.prepare()
    results = [_part(part, setting, args) for part in args.part]
    return 1 if any("failed" in row or "left_out" in row for found in results for row in found["rows"]) else 0


def _part(part: int, setting: Setting, args: argparse.Namespace) -> dict[str, Any]:
    """Do one part, write it, print it."""
    works = parts.works(part, setting)
    book = KEPT / "rows.jsonl"
    if args.anew is not None:
        rows.forget(book, args.anew or [work.name for work in works])
    done = rows.through(
        works, book, setting.on, args.minutes * 60, lambda line: print(line, file=sys.stderr, flush=True)
    )
    found = {
        "schema": "gobrrr.gpu/1", "part": part, "title": parts.TITLES[part], **setting.head(), "rows": done,
        "bars": planting.bars(done),
    }  # fmt: skip
    folder = ROOT / "benchmarks" / "results" if setting.real else KEPT
    file = folder / f"gpu-{part}-{found['date']}.json"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{table.table(found)}\nin {file}", flush=True)
    return found


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = list(parts.TITLES)
    parser.add_argument("--part", type=int, nargs="+", choices=every, default=every, metavar="N")
    parser.add_argument("--minutes", type=float, default=rows.BUDGET_S / 60, help="of each part (9)")
    parser.add_argument("--anew", nargs="*", metavar="NAME", help="forget these rows, or all of the parts")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="as small as it goes; nothing that it says is a figure")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
