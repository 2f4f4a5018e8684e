"""`gobrrr attach` on running programs whose cause is known, and on their healthy twins: was the kind of work named, and
the line?

    python -m benchmarks.attached [NAME ...]
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from gobrrr.system import process_tree
from tests.planted.catalogue import BY_NAME

HERE = Path(__file__).parent
PROGRAMS = HERE / "attach_programs"
STARTS_S, LOOKS_S = 15, 6


class Case(NamedTuple):
    """A program, and the kind of work that must stand out in it; empty where nothing may. The line must be one that is
    marked, where the program has marks."""

    name: str
    command: tuple[str, ...]
    kind: str
    lines: frozenset[int] = frozenset()


def _planted(name: str, kind: str) -> list[Case]:
    many = ("--steps", "1000000")
    sick, healthy = (str(BY_NAME[name].script(who)) for who in ("sick", "healthy"))
    lines = _around(BY_NAME[name].script("sick"), BY_NAME[name].guilty_lines())
    return [Case(name, (sick, *many), kind, lines), Case(f"{name}, healthy", (healthy, *many), "")]


def _around(file: Path, marked: Iterable[int]) -> frozenset[int]:
    """Marked lines, and all of the loops and functions that they are in the innermost one of."""
    blocks = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, (ast.For, ast.FunctionDef))]
    found = set(marked)
    for line in marked:
        inside = [node for node in blocks if node.lineno <= line <= (node.end_lineno or 0)]
        inner = max(inside, key=lambda node: node.lineno, default=None)
        found |= set(range(inner.lineno, (inner.end_lineno or 0) + 1)) if inner and len(inside) > 1 else set()
    return frozenset(found)


def _own(name: str, kind: str, *words: str) -> Case:
    file = PROGRAMS / f"{name}.py"
    marked = frozenset(n for n, line in enumerate(file.read_text().splitlines(), 1) if "# here" in line)
    return Case(f"{name} {' '.join(words)}".strip(), (*words, str(file)), kind, marked)


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29611")
CASES = [
    *_planted("python_transform", "data"), *_planted("slow_collate", "fetch"), *_planted("no_workers", "fetch"),
    *_planted("arrays_through_a_pipe", "receive"), *_planted("slow_storage", "data"),
    *_planted("checkpoint_every_step", "saving"),
    *_planted("prints_tensors", "saving"), *_planted("waits_for_simulator", "waits"),
    *_planted("adam_by_hand", ""), *_planted("python_metric", ""), *_planted("recompiles", "compile"),
    _own("hangs", "still"), _own("reads_losses", "device"),
    Case("slow_rank", (*TORCHRUN, str(PROGRAMS / "slow_rank.py")), "ranks", _own("slow_rank", "").lines),
    Case("slow_rank, even", (*TORCHRUN, str(PROGRAMS / "slow_rank.py"), "even"), ""),
    Case("examples/gpt", ("examples/gpt/train.py", "--steps", "1000000"), ""),
]  # fmt: skip
SAID = {"Nothing moves": "still", "waits for other ranks": "ranks", "Nothing stands out": "", "No wait stands out": ""}


def looked(case: Case) -> dict[str, Any]:
    """Start the program, look at it, end it."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, *case.command], env=env, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    try:
        time.sleep(STARTS_S)
        words = [sys.executable, "-m", "gobrrr", "attach", str(child.pid), "--seconds", str(LOOKS_S), "--json"]
        done = subprocess.run(words, capture_output=True, text=True)
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {"verdict": done.stderr, "processes": []}
    finally:
        for pid in process_tree.tree(child.pid):  # torchrun's ranks have sessions of their own
            os.kill(pid, signal.SIGKILL)
        child.wait()


def named(found: dict[str, Any], case: Case) -> tuple[bool, str]:
    """Say whether the sentence names the kind and a marked line."""
    from gobrrr.rules.outside.verdict import OUT

    said = {**SAID, **{says: kind for kind, _, says in OUT if kind != "other"}}
    kind = next((kind for words, kind in said.items() if words in found["verdict"]), "?")
    at = {int(number) for number in re.findall(r"\.py:(\d+)", found["verdict"])}
    return kind == case.kind and (not case.lines or bool(at & case.lines)), kind


def main() -> None:
    """Print a row for each program."""
    print("| program | right | said |\n|---|---|---|")
    for case in CASES:
        if not sys.argv[1:] or any(word in case.name for word in sys.argv[1:]):
            found = looked(case)
            right, _ = named(found, case)
            print(f"| {case.name} | {'yes' if right else 'NO'} | {found['verdict'].strip()} |", flush=True)


if __name__ == "__main__":
    main()
