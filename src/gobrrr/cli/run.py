"""`gobrrr run`: the program as it is, then its diagnosis on stderr and in the run's folder."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path

from gobrrr.errors import GobrrrError

_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0}
_BYTES = {"MB": 1e6, "GB": 1e9, "MIB": 1 << 20, "GIB": 1 << 30}


class Run:
    """Run a program as it is and say what makes it slow."""

    name = "run"
    help = "run a program as it is and say what makes it slow"
    takes_program = True

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """All options stand before the program; what follows it is the program's own."""
        parser.usage = "gobrrr run [options] script.py [args] | -m module [args] | -- command [args]"
        parser.add_argument("-o", dest="folder", metavar="DIR", help="folder for the recording (default .gobrrr/<run>)")
        parser.add_argument("--json", metavar="FILE", help="write the report as JSON (gobrrr.report/1)")
        parser.add_argument(
            "--steps", type=_positive, default=0, metavar="N", help="steps to profile (default: 2 to 8)"
        )
        parser.add_argument(
            "--stop-after", type=_positive, default=0, metavar="N", help="end the program after N steps"
        )
        parser.add_argument(
            "--budget", default="60s,512MB", metavar="T[,B]", help="most time and memory for the close looks"
        )
        parser.add_argument("--portability", action="store_true", help="also show what would stall a GPU")

    def run(self, args: argparse.Namespace) -> int:
        """Run, report, and leave with the program's own exit code."""
        from gobrrr.capture import launch
        from gobrrr.capture.config import Config
        from gobrrr.cli import diagnosis

        command = _command(args.program)
        budget_ns, budget_bytes = parse_budget(args.budget)
        if args.json:
            _check_target(Path(args.json))
        folder = _folder(args.folder, command)
        config = Config(
            str(folder.resolve()), steps=args.steps, stop_after=args.stop_after,
            budget_ns=budget_ns, budget_bytes=budget_bytes,
        )  # fmt: skip
        code = launch.run(command, config)
        try:
            diagnosis.tell(folder, command, code, json_file=args.json, portability=args.portability)
            sys.stderr.flush()
        except OSError:  # nobody reads stderr any more: the program's exit code is still asked for
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        return launch.leave_as(code)


def _command(words: list[str]) -> list[str]:
    from gobrrr.capture.launch import command_line

    if words[:1] == ["-m"]:
        if len(words) < 2:
            raise GobrrrError("-m wants a module", "gobrrr run -m package.module [args]")
        return command_line(words[1:], module=True, command=False)
    if words[:1] == ["--"]:
        return command_line(words[1:], module=False, command=True)
    return command_line(words, module=False, command=False)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def parse_budget(text: str) -> tuple[int, int]:
    """'30s', '200MB' or '30s,200MB' as (ns, bytes); what is not named keeps its default. Raises GobrrrError."""
    found = [60_000_000_000, 512_000_000]
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)?", part)
        unit = (match.group(2) or "s") if match else ""
        if match and unit.lower() in _SECONDS:
            found[0] = int(float(match.group(1)) * _SECONDS[unit.lower()] * 1e9)
        elif match and unit.upper() in _BYTES:
            found[1] = int(float(match.group(1)) * _BYTES[unit.upper()])
        else:
            raise GobrrrError(
                f"cannot read the budget {part!r}", "say --budget 30s, --budget 200MB or both with a comma"
            )
    return found[0], found[1]


def _folder(named: str | None, command: list[str]) -> Path:
    """Make the run's folder; an earlier run's is never written into."""
    folder = Path(named) if named else Path(".gobrrr") / _run_name(command)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if named:
            raise GobrrrError(f"{folder} is not empty", "name a new folder: an earlier run is never written over")
        folder = next(f for n in range(2, 10_000) if not (f := folder.with_name(f"{folder.name}-{n}")).exists())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise GobrrrError(
            f"cannot write into {folder}: {error.strerror}", "name a folder that can be written with -o DIR"
        ) from None
    return folder


def _run_name(command: list[str]) -> str:
    words = command[1:] if len(command) > 1 else command
    program = words[1] if words[0] == "-m" and len(words) > 1 else words[0]
    stem = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(program).name.removesuffix(".py")) or "run"
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def _check_target(file: Path) -> None:
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise GobrrrError(f"cannot write {file}", "name a file in a folder that exists")


command = Run()
