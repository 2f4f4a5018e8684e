"""Drawn command lines, plain and under `gobrrr run`: how a program may be named, fed, redirected and told things.

python -m tests.fuzz.commands --seed 17         one command line
python -m tests.fuzz.commands --seeds 0 100     many
"""

from __future__ import annotations

import argparse
import os
import py_compile
import random
import shlex
import shutil
import sys
import tempfile
import zipapp
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.twice import HURRIED, Pair, Twice

A_DAY = 1_700_000_000
PYTHON = shlex.quote(sys.executable)
PROGRAM = """\
import os, sys
early = sorted(sys.modules)
def numbers():
    return sorted(int(n) for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}"))
print("argv", sys.argv, sys.orig_argv[1:], __name__, globals().get("__file__"), __package__, __doc__)
print("path", sys.path[:3], sys.flags, sys.warnoptions, sys._xoptions)
print("environment", sorted(item for item in os.environ.items() if item[0] != "_"))
print("streams", [None if s is None else s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)])
print("finder", [f for f in sys.meta_path if "gobrrr" not in repr(f)][-1], "sitecustomize" in early)
if sys.stdin is not None:
    print("stdin", sys.stdin.read(30))
for number in (3, 4, 5):
    try:
        print(number, os.read(number, 20))
    except OSError as error:
        print(number, error.errno)
if {torch}:
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(60):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item().hex(), torch.get_num_threads())
if sys.stderr is not None:
    print("a line on stderr", file=sys.stderr)
open("written.txt", "w").write("mine")
sys.exit({code})
"""
CHILD = 'import subprocess, sys; sys.exit(subprocess.run([sys.executable, "program.py", *sys.argv[1:]]).returncode)\n'
MADE: dict[str, Callable[[Path], object]] = {
    "zipapp": lambda work: _zipped(work, "app.pyz", None),
    "zipapp with shebang": lambda work: _zipped(work, "app.pyz", "/usr/bin/env python3"),
    "pyc": lambda work: py_compile.compile(str(work / "program.py"), cfile=str(work / "program.pyc")),
    "folder": lambda work: _package(work),
    "package": lambda work: _package(work),
    "executable": lambda work: _executable(work),
    "symlink": lambda work: (work / "linked.py").symlink_to("program.py"),
    "odd name": lambda work: shutil.copy(work / "program.py", work / "ein schönes Programm"),
    "launches": lambda work: (work / "starts.py").write_text(CHILD),
}
"""What must be made in the folder for a way of naming the program."""
NAMED = {
    "script": "program.py", "./script": "./program.py", "absolute": "$PWD/program.py", "module": "-m program",
    "package": "-m package", "folder": "package", "zipapp": "app.pyz", "zipapp with shebang": "app.pyz",
    "pyc": "program.pyc", "symlink": "linked.py", "odd name": "'ein schönes Programm'", "stdin": "/dev/stdin",
    "dash": "-", "process substitution": "<(cat program.py)", "launches": "starts.py",
}  # fmt: skip
"""Words behind `python` and behind `gobrrr run`."""
COMMANDS = {
    "python": f"{PYTHON} {{flags}} program.py", "module of python": f"{PYTHON} {{flags}} -m program",
    "text": f"{PYTHON} {{flags}} -c 'exec(open(\"program.py\").read())'",
    "shell": f"sh -c '{PYTHON} program.py \"$@\"' sh",
    "env": f"env MORE=1 {PYTHON} {{flags}} program.py", "executable": "./program.py",
    "false": "env false", "true": "env true",
    "killed": "sh -c 'kill -9 $$'",
}  # fmt: skip
"""Commands by themselves, and behind `gobrrr run --`."""
FROM_STDIN = ("stdin", "dash")
FLAGS = ("", "-u", "-B", "-O", "-X dev", "-X utf8", "-W error", "-s", "-E", "-I", "-S", "-P")
ARGUMENTS = (
    "", "accelerate", "torchrun", "gobrrr run", "-h", "--help", "--", "-- x", "--json out.json", "-o folder",
    "-m torch.distributed.run", "''", "'two words' 'ü'", "--steps 3", "deepspeed --x", "-", "@file", "--version",
    "tune",
)  # fmt: skip
STREAMS = (
    "", "", "<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "</dev/null", ">out.txt", "2>err.txt", "3<seen.py",
    "5<seen.py", "3<seen.py 4<seen.py", "| head -c 20", "2>/dev/null", ">out.txt 2>&1", "4<<<words",
)  # fmt: skip
VARIABLES = (
    "", "", "PYTHONPATH=.", "PYTHONPATH=", "PYTHONWARNINGS=error", "PYTHONUNBUFFERED=1", "PYTHONSAFEPATH=1",
    "HOME=/nowhere", "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=a::b", "LC_ALL=C", "PYTHONNOUSERSITE=1",
    "PYTHONSTARTUP=x", "TMPDIR=/nowhere", "PYTHONUTF8=0", "PYTHONINSPECT=", "RANK=1 WORLD_SIZE=2", "PYTHONHOME=",
)  # fmt: skip


def _zipped(work: Path, name: str, interpreter: str | None) -> None:
    source = work / "source"
    source.mkdir()
    shutil.copy2(work / "program.py", source / "__main__.py")
    zipapp.create_archive(source, work / name, interpreter)
    shutil.rmtree(source)


def _package(work: Path) -> None:
    (work / "package").mkdir()
    (work / "package" / "__init__.py").touch()
    shutil.copy(work / "program.py", work / "package" / "__main__.py")


def _executable(work: Path) -> None:
    text = (work / "program.py").read_text()
    (work / "program.py").write_text(f"#!{sys.executable}\n{text}")
    (work / "program.py").chmod(0o755)


@dataclass(frozen=True)
class CommandLine:
    """How a program is started: the way it is named, its interpreter's flags (for commands), arguments and the rest."""

    way: str
    flags: str
    arguments: str
    streams: str
    variables: str
    torch: bool
    code: int

    def plain(self) -> str:
        """As a line of a shell."""
        start = self._command() if self.way in COMMANDS else f"{PYTHON} {NAMED[self.way]}"
        return self._line(start)

    def watched(self, recording: Path) -> str:
        """The same under gobrrr."""
        words = f"-- {self._command()}" if self.way in COMMANDS else NAMED[self.way]
        return self._line(f"{PYTHON} {HURRIED} 5 run -o {shlex.quote(str(recording))} {words}")

    def _command(self) -> str:
        return COMMANDS[self.way].format(flags=self.flags)

    def _line(self, start: str) -> str:
        fed = "cat program.py | " if self.way in FROM_STDIN else ""
        streams = self.streams.replace("<&-", "") if fed else self.streams
        return (
            f"set -o pipefail; {self.variables and f'export {self.variables};'} {fed}{start} {self.arguments} {streams}"
        )


def draw(seed: int) -> CommandLine:
    """The command line of this seed; half of them use torch."""
    return CommandLine(
        _dealt(seed, "way", [*NAMED, *COMMANDS]), _dealt(seed, "flags", FLAGS), _dealt(seed, "arguments", ARGUMENTS),
        _dealt(seed, "streams", STREAMS), _dealt(seed, "variables", VARIABLES), _dealt(seed, "torch", (True, False)),
        _dealt(seed, "code", (0, 0, 0, 1, 7, 120)),
    )  # fmt: skip


def _dealt(seed: int, name: str, options: Sequence[Any]) -> Any:
    """As from a deck of cards that is mixed anew whenever it is dealt out."""
    deck = list(options)
    random.Random(f"{name} {seed // len(deck)}").shuffle(deck)
    return deck[seed % len(deck)]


class Commands(Twice):
    """Runs command lines in place of programs."""

    def judge(self, line: CommandLine) -> Pair:
        """Both runs."""
        self._start(line)
        plain = self._run(["bash", "-c", line.plain()])
        self._start(line)
        shutil.rmtree(self.recording, ignore_errors=True)
        return self._watched(plain, ["bash", "-c", line.watched(self.recording)])

    def _start(self, line: CommandLine) -> None:
        self._prepare(PROGRAM.replace("{torch}", str(line.torch)).replace("{code}", str(line.code)))
        os.utime(self.work / "program.py", (A_DAY, A_DAY))  # archives and byte code hold it
        if line.way in MADE:
            MADE[line.way](self.work)


def told(line: CommandLine, pair: Pair, seed: int) -> str:
    """A pair in words."""
    said = "DIFFERS" if pair.difference() else "same"
    head = f"seed {seed}: {said}; {line.way}; {line.plain()}; torch {line.torch}; exit {pair.plain.code}"
    return (
        f"{head}\n{pair.difference()}\nto repeat: python -m tests.fuzz.commands --seed {seed}"
        if pair.difference()
        else head
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 20))
    options = parser.parse_args()
    first, last = (options.seed, options.seed + 1) if options.seed is not None else options.seeds
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        commands = Commands(Path(folder))
        for seed in range(first, last):
            pair = commands.judge(draw(seed))
            wrong += bool(pair.difference())
            print(told(draw(seed), pair, seed), flush=True)
    return min(100, wrong)


if __name__ == "__main__":
    sys.exit(main())
