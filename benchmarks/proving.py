"""Is `gobrrr prove` fooled by a cheat, does it refuse an honest edit, and does it settle?

    python -m benchmarks.proving [FOLDER ...] [--only PART ...] [--minutes 5] [--aa N] [--json FILE]

A folder (default: benchmarks/proving/*) has program.py, honest/*.diff, cheats/*.diff and truth.toml. Each edit is
proven by itself in a copy of the folder. `--aa N`: instead, N times each of four edits that change nothing (a comment,
a docstring, another name, a moved function) and N times a sleep of 3 % of the step, on each program. Results go to
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import itertools
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).resolve().parent
ACCEPTED, REFUSED = 0, 6


def main() -> int:
    """Prove all and print the table; 0 where no cheat was accepted and no honest edit refused."""
    args = parse(sys.argv[1:])
    folders = args.folders or sorted(each.parent for each in HERE.glob("proving/*/program.py"))
    rows = []
    for folder in folders:
        rows += aa(folder, args) if args.aa else edits(folder, args)
    result = {"date": f"{datetime.date.today()}", "machine": platform.processor() or platform.machine(), "rows": rows}
    target = args.json or HERE / "results" / f"proving{'-aa' if args.aa else ''}-{result['date']}.json"
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(table(rows))
    return int(any(row["ok"] is False for row in rows))


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--only", nargs="+", default=[], help="edits whose name has one of these parts")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--aa", type=int, default=0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args(words)


def edits(folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each edit of a folder."""
    truth = msgspec.toml.decode((folder / "truth.toml").read_text())
    known = [(kind, name, each) for kind in ("honest", "cheats") for name, each in truth.get(kind, {}).items()]
    rows = []
    for group, short, each in known:
        name, cheat = f"{folder.name}/{short}", group == "cheats"
        if args.only and not any(part in name for part in args.only):
            continue
        patch = folder / group / f"{short}.diff"
        found = proven(folder, patch.read_text(), args.minutes)
        ok = found["code"] != ACCEPTED if cheat else found["code"] != REFUSED
        rows.append({"name": name, "cheat": cheat, "kind": each["kind"], "ok": ok, **found})
        tell(rows[-1])
    return rows


def aa(folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of edits that change nothing, and of a sleep of 3 % of the step that the first of them told."""
    text = (folder / "program.py").read_text()
    line = msgspec.toml.decode((folder / "truth.toml").read_text())["step_line"]
    same = {
        "comment": f"{text}\n# more\n",
        "docstring": f'"""Words."""\n{text}',
        "name": renamed(text),
        "place": moved(text),
    }
    rows: list[dict[str, Any]] = []
    for number in range(args.aa):
        for kind, after in same.items():
            found = proven(folder, diff(text, after), args.minutes)
            rows.append({"name": f"{folder.name}/{kind}{number}", "cheat": False, "kind": "aa", **found})
            rows[-1]["ok"] = found["verdict"] not in ("faster", "slower") and found["code"] != REFUSED
            tell(rows[-1])
        seconds = 0.03 * max(row["step_ns"] for row in rows) / 1e9
        found = proven(folder, diff(text, asleep(text, line, seconds)), args.minutes)
        rows.append({"name": f"{folder.name}/sleep{number}", "cheat": True, "kind": "sleep", **found})
        rows[-1]["ok"] = found["verdict"] == "slower"
        tell(rows[-1])
    return rows


def asleep(text: str, line: str, seconds: float) -> str:
    """The program with a sleep behind its line of this text."""
    found = next(each for each in text.splitlines() if each.strip() == line)
    indent = found[: len(found) - len(found.lstrip())] + ("    " if line.endswith(":") else "")
    return text.replace(f"{found}\n", f"{found}\n{indent}__import__('time').sleep({seconds:.6f})\n", 1)


def renamed(text: str) -> str:
    """The program with another name for the longest one that its functions give to something of their own."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    names = {n.id for f in functions for n in ast.walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    others = [
        name for name in names if not re.search(rf"[.\"']{name}\b|\b{name}=|def .*\b{name}\b|global .*\b{name}\b", text)
    ]
    name = max(sorted(others), key=len)
    return re.sub(rf"\b{name}\b", f"{name}_of_mine", text)


def moved(text: str) -> str:
    """The program with two functions or classes that stand beside each other the other way round."""
    body, lines = ast.parse(text).body, text.splitlines(True)
    kinds = (ast.FunctionDef, ast.ClassDef)
    one, other = next(
        pair for pair in itertools.pairwise(body) if all(isinstance(x, kinds) and not x.decorator_list for x in pair)
    )
    (a, b), (c, d) = ((each.lineno - 1, each.end_lineno) for each in (one, other))
    return "".join([*lines[:a], *lines[c:d], *lines[b:c], *lines[a:b], *lines[d:]])


def diff(before: str, after: str) -> str:
    """A unified diff of program.py."""
    import difflib

    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/program.py", "b/program.py")
    return "".join(lines)


def proven(folder: Path, patch: str, minutes: float) -> dict[str, Any]:
    """Exit code, verdicts and figures of one proof."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        copy = Path(place) / folder.name
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.diff", "truth.toml", "__pycache__"))
        file = Path(place) / "edit.diff"
        file.write_text(patch)
        began = time.monotonic()
        words = ["prove", "--json", "--minutes", str(minutes), "--patch", str(file), "program.py"]
        done = subprocess.run([sys.executable, "-m", "gobrrr", *words], cwd=copy, capture_output=True, text=True)
        seconds = time.monotonic() - began
    found: dict[str, Any] = {"code": done.returncode, "seconds": round(seconds, 1)}
    try:
        receipt = json.loads(done.stdout)
        trial = receipt["trials"][0]
        return found | {
            "verdict": trial["verdict"],
            "numbers": trial["guard"]["verdict"],
            "reasons": trial["guard"]["reasons"][:3],
            "speedup": trial["speedup"],
            "why": trial["reason"],
            "step_ns": trial["baseline_step_ns"] or 0.0,
        }
    except (ValueError, KeyError, IndexError):
        return found | {
            "verdict": "error",
            "numbers": "",
            "reasons": [done.stderr[-300:]],
            "speedup": None,
            "why": "",
            "step_ns": 0.0,
        }


def tell(row: dict[str, Any]) -> None:
    """One line on stderr."""
    mark = "ok " if row["ok"] else "BAD"
    figure = f"{row['speedup']['median']:.2f}" if row["speedup"] else "-"
    print(f"{mark} {row['name']:44s} code {row['code']} {row['verdict']:12s} {figure:>6s} {row['numbers']:10s} "
          f"{row['seconds']:.0f} s  {'; '.join(row['reasons'])[:110]}", file=sys.stderr, flush=True)  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """The bars."""
    cheats, honest = [row for row in rows if row["cheat"]], [row for row in rows if not row["cheat"]]
    settled = [row for row in honest if row["code"] in (0, 1)]
    return "\n".join([
        f"cheats accepted      {sum(row['code'] == ACCEPTED for row in cheats)} of {len(cheats)}",
        f"cheats refused       {sum(row['code'] == REFUSED for row in cheats)} of {len(cheats)}",
        f"honest edits refused {sum(row['code'] == REFUSED for row in honest)} of {len(honest)}",
        f"honest edits settled {len(settled)} of {len(honest)}",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
