"""`gobrrr run`: the program as it is, then its diagnosis on stderr and in the run's folder."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli import options, streams
from gobrrr.cli.reading.report import add_options, put, with_edits
from gobrrr.errors import GobrrrError

if TYPE_CHECKING:
    from gobrrr.recording.model.setup import Setup
    from gobrrr.rules.verdict.report import Report
    from gobrrr.trial.receipt.recipe import Recipe


SIGNALS = ("USR1", "USR2")


def prepare(parser: argparse.ArgumentParser) -> None:
    """All options stand before the program; what follows it is the program's own."""
    parser.usage = "gobrrr run [options] script.py [args] | -m module [args] | -- command [args]"
    options.add_folder(parser, "the recording")
    parser.add_argument(
        "--json", nargs="?", const="", metavar="FILE.json",
        help="write the report as JSON (gobrrr.report/1); without a file to stdout, and the program's to stderr",
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=options.at_least_one, default=0, metavar="N", help="steps to profile (default: 2 to 8)"
    )
    parser.add_argument(
        "--stop-after", type=options.at_least_one, default=0, metavar="N",
        help="end the program after N steps; behind --from-step or --on-signal, N steps after the look began",
    )  # fmt: skip
    later = parser.add_mutually_exclusive_group()
    later.add_argument(
        "--from-step", type=options.at_least_one, default=0, metavar="N",
        help="look closely once the program has made N steps, and compare with its first ones",
    )  # fmt: skip
    later.add_argument(
        "--on-signal", nargs="?", const="USR2", default="", choices=SIGNALS, metavar="USR2",
        help="look closely whenever gobrrr is sent this signal (USR1 or USR2)",
    )  # fmt: skip
    parser.add_argument(
        "--budget", default="60s,512MB", metavar="T[,B]", help="most time and memory for the close looks"
    )
    parser.add_argument("--recipe", metavar="FILE", help="apply the remedies of a recipe that `gobrrr tune` wrote")
    parser.add_argument(
        "--no-rehearsal", dest="rehearsal", action="store_false",
        help="estimate savings instead of trying remedies on the program's own ops afterwards (at most 10 s)",
    )  # fmt: skip
    parser.add_argument("--portability", action="store_true", help="also show what would stall a GPU")
    parser.add_argument(
        "--baseline", action="store_true",
        help="of a torchrun job: also run one rank alone, in a copy of this folder, and say what the others add",
    )  # fmt: skip
    add_options(parser)
    options.add_price(parser)
    options.add_redact(parser)


def run(args: argparse.Namespace) -> int:
    """Run, report, and leave with the program's own exit code."""
    from gobrrr.capture.process import launch
    from gobrrr.capture.process.config import SESSION, Config
    from gobrrr.capture.process.deaths import Deaths
    from gobrrr.capture.process.gauging import Gauging
    from gobrrr.capture.process.setup import noting
    from gobrrr.machine.probe.system_probe import oom_kills
    from gobrrr.system import run_folder
    from gobrrr.trial.arm.ranks import launcher

    command = command_of(args.program)
    budget_ns, budget_bytes = parse_budget(args.budget)
    options.price(args)  # before anything is started
    if args.json:
        _check_target(Path(args.json))
    recipe, variables = _recipe(args.recipe, command) if args.recipe else (None, {})
    folder = run_folder.of_run(args.folder, command)
    config = Config(
        str(folder.resolve()), steps=args.steps, stop_after=args.stop_after,
        budget_ns=budget_ns, budget_bytes=budget_bytes,
        watcher="gobrrr.remedies.mechanism.applying:Treated" if recipe else SESSION,
        remedies=",".join(recipe.names) if recipe else None,
        from_step=args.from_step, on_signal=_heard(args.on_signal, folder) if args.on_signal else 0,
    )  # fmt: skip
    if args.json == "":
        streams.keep_stdout()
    kills, setup = oom_kills(), noting(command, variables, recipe.names if recipe else ())
    with Gauging(folder), Deaths(folder) if launcher(command) else contextlib.nullcontext():
        code = launch.run(command, config, variables)
    try:
        _tell(args, recipe, folder, command, code, kills, setup())
    except OSError:  # nobody reads stderr any more: the program's exit code is still asked for
        streams.to_nowhere(2)
    return launch.leave_as(code)


def _heard(name: str, folder: Path) -> int:
    """Pass the signal on to the processes that listen, from now on; say how to send it, return its number."""
    import signal

    from gobrrr.capture.process.listening import pass_on

    def passed(number: int, _frame: object) -> None:
        if not pass_on(number, folder):
            streams.say(f"gobrrr: no process of the program listens for {name} now: send it while it trains")

    number = signal.Signals[f"SIG{name}"]
    signal.signal(number, passed)
    streams.say(f"gobrrr: kill -{name} {os.getpid()} asks for a closer look")
    return int(number)


def _tell(
    args: argparse.Namespace, recipe: Recipe | None, folder: Path, command: list[str], code: int, kills: int | None,
    setup: Setup,
) -> None:  # fmt: skip
    from gobrrr.pipeline import runs  # not before: the program is started from a small process, without threads

    if recipe is not None:
        from gobrrr.cli.recipe import outcome

        for said in outcome(recipe, folder):
            streams.say(f"gobrrr: {said}")
    told = runs.tell(
        folder, command, code, kills_before=kills, baseline=args.baseline,
        shown={"verbose": args.verbose, "ops": args.ops}, portability=args.portability, patterns=args.redact,
        rehearsal=args.rehearsal, price=options.price(args), setup=setup,
    )  # fmt: skip
    sys.stderr.flush()
    if args.json is not None:
        _write(told, args)


def _recipe(file: str, command: list[str]) -> tuple[Recipe, dict[str, str]]:
    """Read, checked and compared with what is here, and the variables that it sets, before anything is started."""
    from gobrrr.cli import recipe as recipes
    from gobrrr.remedies import registry

    found = recipes.read(Path(file))
    for said in recipes.misfits(found, command):
        streams.say(f"gobrrr: recipe: {said}")
    return found, registry.environment(found.names, found.options)


def command_of(words: list[str]) -> list[str]:
    """The plain command of what follows a verb's options. Raises GobrrrError."""
    from gobrrr.capture.process.launch import command_line

    if words == ["-m"]:
        raise GobrrrError("-m needs the name of a module", "gobrrr run -m package.module [args]")
    module, command = words[:1] == ["-m"], words[:1] == ["--"]
    return command_line(words[1:] if module or command else words, module=module, command=command)


def parse_budget(text: str) -> tuple[int, int]:
    """'30s', '200MB' or '30s,200MB' as (ns, bytes); what is not named keeps its default. Raises GobrrrError."""
    found = [60_000_000_000, 512_000_000]
    for part in filter(None, (p.strip() for p in text.split(","))):
        for at, read in enumerate((options.duration, options.size)):
            with contextlib.suppress(argparse.ArgumentTypeError):
                found[at] = read(part)
                break
        else:
            hint = "say --budget 30s, --budget 200MB or both with a comma"
            raise GobrrrError(f"cannot read the budget {part!r}", hint)
    return found[0], found[1]


def _write(told: Report | GobrrrError, args: argparse.Namespace) -> None:
    """The report, or why there is none, as JSON; an error into no file."""
    from gobrrr.pipeline import redaction
    from gobrrr.report.forms.formats import View
    from gobrrr.report.forms.json import as_json

    if isinstance(told, GobrrrError):
        put(as_json(told.document()), None) if not args.json else None
        return
    view = View(str(Path.cwd()), anywhere=True, mask=redaction.masker(args.redact))
    try:
        put(as_json(told, with_edits(view, told)), args.json)
    except GobrrrError as error:
        streams.say(f"gobrrr: {error}")


def _check_target(file: Path) -> None:
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise GobrrrError(f"cannot write {file}", "name a file in a folder that exists")
