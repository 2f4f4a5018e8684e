"""Do the tests bite? Small faults put into the rooms that judge, one at a time: those that survive are not tested.

    python -m benchmarks.mutants [--sample 50] [--seed 0] [--jobs 2] [--rooms guard trial] [--again FILE] [--minutes 20]
                                [--out FILE]

Of each room so many mutants are drawn, always the same ones while their lines stay as they are. Each is put into a copy
of src/, and the fast tests of its room run against that until one fails, first those that import the file or its
folder, by themselves. Killed: a test failed, or took three times as long as all of them do without the fault.
Equivalent: nothing can kill it, for the reason that mutants_equivalent.toml gives by hand; it counts for nothing.
--again tries only those that survived in an earlier result, once tests were added. --minutes begins no further mutant
after so long; what was not tried is left out, and as the order is the draw's, what was tried is a draw too. Writes
benchmarks/results/mutants-DATE.json.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import os
import platform
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.mutation import Mutant, mutants

Words = tuple[str, str, str]
"""A mutant's file, and its lines before and after."""
ROOT = Path(__file__).parent.parent
SRC, RESULTS = ROOT / "src", Path(__file__).parent / "results"
EQUIVALENT = Path(__file__).parent / "mutants_equivalent.toml"
SLOWER, AT_LEAST = 3.0, 30.0
"""A mutant may take so many times as long as all tests of its room, and so many seconds in any case."""


class Room(NamedTuple):
    """Which files are changed, and which tests must see it."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    """Of these the ones that import the room."""
    helpers: tuple[str, ...] = ()
    """What tests import that import the room in their stead."""


JUDGE = (
    *(f"verdicts/{name}" for name in ("judging", "closeness", "structure", "trajectory", "side_effects")),
    *(f"model/{name}" for name in ("verdict", "observation", "tensor_digest")),
)
DECIDES = (
    *(f"statistics/{name}" for name in ("paired", "anytime", "block_schedule", "rounds")),
    *(f"race/{name}" for name in ("search", "race", "referee")), "arm/process_group",
)  # fmt: skip
FAST = (
    *(f"{room}/test_*.py" for room in ("benchmarks", "capture", "lab", "ledger", "machine", "recording", "rehearsal",
                                       "report", "rules", "system")),
    *(f"trial/test_{name}.py" for name in ("trial_*", "field", "full_stack", "guarding", "handshake", "headspace",
                                           "loader_*", "lockstep", "objective", "orphans", "racing", "turns")),
    *(f"cli/test_{name}.py" for name in ("check", "cli", "completion", "report_cli", "top_terminal", "tune_ends",
                                         "verify")),
    *(f"pipeline/test_{name}.py" for name in ("nowof", "raised_ceilings", "watching")),
    "data/test_sequences.py", "remedies/test_additions.py",
)  # fmt: skip
"""Tests that hardly start a program."""
ROOMS = {
    "ledger": Room(("ledger/**/*.py",),
                   (*FAST, *(f"pipeline/test_{name}.py" for name in ("lateness", "files", "compare"))),
                   ("handmade", "kineto_timelines", "timelines", "event_streams", "test_work")),
    "rules": Room(("rules/**/*.py",), FAST, ("handmade", "rule_lines")),
    "guard": Room(tuple(f"guard/{name}.py" for name in JUDGE), tuple(f"guard/test_{name}.py" for name in
                  ("closeness", "structure", "worker_draws", "doors", "trajectory"))),
    "trial": Room(tuple(f"trial/{name}.py" for name in DECIDES), (*FAST, "trial/test_family.py"),
                  ("race_clock", "trial_clock")),
}  # fmt: skip
SLOW = ("test_trial_heat", "test_trial_schedule", "test_trial_rounds", "test_report_text", "test_tuning_page",
        "test_timeline", "test_job_page", "test_noted", "test_cli", "test_comparison_page")  # fmt: skip
"""Run for the modules alone that they import themselves."""


def files_of(room: Room) -> list[Path]:
    """Those that are changed."""
    return sorted(file for glob in room.files for file in (SRC / "gobrrr").glob(glob))


def drawn(room: Room, num: int, seed: int) -> list[Mutant]:
    """The mutants of a room with the lowest hashes: what changes elsewhere changes no other draw."""
    ranked, seen = [], Counter[tuple[str, str, str]]()
    for file in files_of(room):
        for mutant in mutants(str(file.relative_to(SRC)), file.read_bytes()):
            words = mutant.file, mutant.before, mutant.after
            seen[words] += 1
            key = hashlib.blake2b(repr((seed, *words, seen[words])).encode()).digest()
            ranked.append((key, mutant))
    return [mutant for _, mutant in sorted(ranked)[:num] if mutant.of((SRC / mutant.file).read_bytes())]


def tests_of(name: str, file: str = "") -> tuple[list[str], list[str]]:
    """A room's: those that import the file itself or, where it has one inside the room, its folder; and the others."""
    stem, folder = Path(file).stem, Path(file).parent.name
    near = rf"gobrrr\.{name}(\.\w+)*(\.{stem}\b| import .*\b{stem}\b)" if stem else "$^"
    inside = rf"gobrrr\.{name}\.{folder}\b|test_{folder} import" if folder not in ("", name) else "$^"
    of_room = rf"gobrrr\.{name}\b|{'|'.join(ROOMS[name].helpers) or name}"
    found: tuple[list[str], list[str]] = ([], [])
    for path in sorted({path for glob in ROOMS[name].tests for path in (ROOT / "tests").glob(glob)}):
        text = path.read_text()
        own = re.search(near, text) or re.search(inside, text)
        if own or (path.stem not in SLOW and re.search(of_room, text)):
            found[own is None].append(str(path.relative_to(ROOT)))
    return found


def run(src: Path, tests: list[str], seconds: float) -> str:
    """passed, failed or timeout."""
    env = os.environ | {
        "PYTHONPATH": f"{src}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(src / "hypothesis"),
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0",
               "-m", "not slow and not gpu", *tests]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)  # fmt: skip
    try:
        return "failed" if process.wait(seconds) else "passed"
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def tried(mutant: Mutant, src: Path, stages: tuple[list[str], list[str]], seconds: float) -> str:
    """What became of a mutant in this copy of src/: most fall to the near tests; collecting the others takes longer."""
    file, plain = src / mutant.file, (SRC / mutant.file).read_bytes()
    try:
        file.write_bytes(mutant.of(plain) or plain)
        _forget(file)
        found = next((end for tests in stages if tests and (end := run(src, tests, seconds)) != "passed"), "passed")
        return {"passed": "survived", "failed": "killed"}.get(found, found)
    finally:
        file.write_bytes(plain)
        _forget(file)


def _forget(file: Path) -> None:
    """Its compiled version: one of the same size and second would be taken for it."""
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()


def known() -> dict[Words, str]:
    """Why a mutant is equivalent, by its file, before and after."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    listed = tomllib.loads(EQUIVALENT.read_text()).get("mutant", []) if EQUIVALENT.exists() else []
    return {(each["file"], each["before"], each["after"]): each["why"] for each in listed}


class Bench:
    """Copies of src/ in which mutants are tried, as many at once."""

    def __init__(self, folder: Path, jobs: int, spared: set[Words], minutes: float) -> None:
        """`spared`: killed before, and not tried again. `minutes`: for each room, its plain tests among them."""
        self._pool, self._why, self._spared, self._minutes = ThreadPoolExecutor(jobs), known(), spared, minutes
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            ignored = shutil.ignore_patterns("__pycache__")
            self._free.put(Path(shutil.copytree(SRC, folder / f"src{number}", ignore=ignored)))

    def room(self, name: str, sample: list[Mutant]) -> list[dict[str, str | int]]:
        """What became of each mutant. Raises RuntimeError where the room's tests fail by themselves."""
        src, start = self._free.get(), time.monotonic()
        if (found := run(src, [path for stage in tests_of(name) for path in stage], 1200.0)) != "passed":
            raise RuntimeError(f"the tests of {name} have {found} without any fault: mend that first")
        plain = time.monotonic() - start
        self._free.put(src)
        print(f"{name}: its tests take {plain:.0f} s", flush=True)
        fate = partial(self._fate, name, max(AT_LEAST, SLOWER * plain), start + 60 * self._minutes)
        return [found for found in self._pool.map(fate, sample) if found is not None]

    def _fate(self, room: str, seconds: float, until: float, mutant: Mutant) -> dict[str, str | int] | None:
        if time.monotonic() > until:
            return None
        words = mutant.file, mutant.before, mutant.after
        if words in self._why:
            fate = "equivalent"
        elif words in self._spared:
            fate = "killed"
        else:
            src = self._free.get()
            fate = tried(mutant, src, tests_of(room, mutant.file), seconds)
            self._free.put(src)
        if fate == "survived":
            print(f"src/{mutant.file}:{mutant.line}: {mutant.before}  ->  {mutant.after}", flush=True)
        return dict(zip(("room", "file", "line", "before", "after", "fate"),
                        (room, mutant.file, mutant.line, *words[1:], fate), strict=True))  # fmt: skip


def scores(results: list[dict[str, str | int]]) -> dict[str, dict[str, float]]:
    """Of each room and of all: how many met which fate, and the share that was killed."""
    found = {}
    for room in (*dict.fromkeys(r["room"] for r in results), "all"):
        fates = Counter(str(r["fate"]) for r in results if room in (r["room"], "all"))
        dead, told = fates["killed"] + fates["timeout"], sum(fates.values()) - fates["equivalent"]
        found[str(room)] = {**fates, "killed_share": round(dead / max(1, told), 3)}
        print(f"{room:8} {dead} of {told} killed ({dead / max(1, told):.0%}), {fates['equivalent']} equivalent")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=50, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--again", type=Path, help="an earlier result, of which only the survivors are tried")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of each room, after which none is begun")
    parser.add_argument("--out", type=Path, default=RESULTS / f"mutants-{datetime.date.today().isoformat()}.json")
    args = parser.parse_args()
    begun, earlier = time.monotonic(), json.loads(args.again.read_text())["mutants"] if args.again else []
    spared = {(m["file"], m["before"], m["after"]) for m in earlier if m["fate"] in ("killed", "timeout")}
    results = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args.jobs, spared, args.minutes)
        for name in args.rooms:
            results += bench.room(name, drawn(ROOMS[name], args.sample, args.seed))
    head = {"date": datetime.date.today().isoformat(), "python": platform.python_version(), "seed": args.seed,
            "again": args.again.name if args.again else None, "seconds": round(time.monotonic() - begun),
            "scores": scores(results)}  # fmt: skip
    rows = ",\n".join(json.dumps(each) for each in results)
    args.out.write_text(json.dumps(head, indent=1)[:-2] + f',\n "mutants": [\n{rows}\n]\n}}\n')


if __name__ == "__main__":
    main()
