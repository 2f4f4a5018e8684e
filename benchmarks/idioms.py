"""The pairs of the table of idioms: how much slower is each, and does `gobrrr run` name it, and its twin not?

    python -m benchmarks.idioms [NAME ...] [--rounds 3] [--write] [--times-only] [--cpu] [--json FILE]

Slow program and twin run in turn, without gobrrr; then each once under it. `--rounds 0` asks gobrrr alone. `--write`
puts the ratio and what is left of the slow form's time into the idioms' files.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import stamp
from gobrrr.rules.idioms.table import FOLDER, Idiom, idioms

LEAST = 1.3
"""Times that the slow program must take of its twin's."""
CLOCK = """
import sys, time
import numpy, torch
source = open(sys.argv[1]).read()
code = compile(source, sys.argv[1], "exec")
clock = time.process_time if "--cpu" in sys.argv else time.perf_counter
began = clock()
exec(code, {"__name__": "__main__", "__file__": sys.argv[1]})
print("seconds", clock() - began)
"""


@dataclass
class Row:
    """One pair's figures."""

    name: str
    times: float
    spread: str
    left: float | None = None
    named: bool = False
    """With its line, in the slow program."""
    silent: bool = False
    """Of the mended one."""
    said: str = ""

    @property
    def good(self) -> bool:
        """Slow enough, named, and its twin not."""
        return self.times >= LEAST and self.named and self.silent


def main() -> int:
    """Measure the pairs; 0 where each is slow enough, named, and silent once mended."""
    args = parse(sys.argv[1:])
    rows = []
    print("| idiom | times | range | left | named | twin silent | what else was said |\n|---|--:|---|--:|---|---|---|")
    for idiom in idioms():
        if args.names and idiom.name not in args.names:
            continue
        if missing := [name for name in idiom.pair.needs if importlib.util.find_spec(name) is None]:
            print(f"{idiom.name}: needs {', '.join(missing)}", file=sys.stderr)
            continue
        row = examine(idiom, args.rounds, args.times_only)
        rows.append(row)
        if args.write and row.left is not None:
            write(idiom, row)
        print(line(row), flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(f"\n{sum(row.good for row in rows)} of {len(rows)} are good; {stamp.stamp()}")
    return 0 if all(row.good for row in rows) else 1


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--times-only", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="time of the processor: for a busy machine")
    parser.add_argument("--json")
    return parser.parse_args(words)


def line(row: Row) -> str:
    left = "" if row.left is None else f"{row.left:.2f}"
    words = (row.name, f"{row.times:.2f}", row.spread, left, *(("no", "yes")[x] for x in (row.named, row.silent)))
    return f"| {' | '.join(words)} | {row.said} |"


def examine(idiom: Idiom, rounds: int, times_only: bool) -> Row:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for twin in ("ill", "well"):
            (folder / f"{twin}.py").write_text(idiom.pair.text(twin))
        ratios = sorted(seconds(folder, "ill") / seconds(folder, "well") for _ in range(rounds)) or [idiom.pair.times]
        row = Row(idiom.name, statistics.median(ratios), f"{ratios[0]:.2f} to {ratios[-1]:.2f}")
        if not times_only:
            judge(idiom, folder, row)
    return row


def seconds(folder: Path, twin: str) -> float:
    command = [sys.executable, "-c", CLOCK, f"{twin}.py", *(word for word in sys.argv if word == "--cpu")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{twin} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def judge(idiom: Idiom, folder: Path, row: Row) -> None:
    """What gobrrr says of both."""
    ill, well = (report(folder, twin) for twin in ("ill", "well"))
    name = idiom.name.replace("_", "-")
    own = [each for each in ill["findings"] if each["name"] == name]
    lines = [span["line"] for each in own for span in each["where"][:1]]
    row.named = any(each in idiom.pair.guilty for each in lines)
    loud = [each for each in well["findings"] if each["code"] == "BRR320"]
    row.silent = not loud
    first = ill["findings"][0]["name"] if ill["findings"] else "nothing"
    row.said = "" if row.named else f"at {lines}" if own else f"first: {first}; {ill['verdict']['sentence'][:90]}"
    row.said += "".join(f"; twin: {each['name']}" for each in loud)
    if own:
        share = own[0]["evidence"]["time"]["value"] / ill["step"]["plain_wall_ns"]
        row.left = min(0.95, max(0.0, 1 - (1 - 1 / row.times) / share))


def report(folder: Path, twin: str) -> dict:
    out = folder / f"run-{twin}"
    command = [sys.executable, "-m", "gobrrr", "run", "--no-rehearsal", "-o", str(out), f"{twin}.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ.copy())
    found = out / "report.json"
    if not found.is_file():
        raise SystemExit(f"{twin}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return json.loads(found.read_text())


def write(idiom: Idiom, row: Row) -> None:
    """Put what was measured into the idiom's file."""
    (file,) = FOLDER.glob(f"*/{idiom.name}.toml")
    text = file.read_text()
    for key, value in (("times", row.times), ("left", row.left)):
        text = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value:.2f}", text, count=1)
    file.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
