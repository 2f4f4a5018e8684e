"""`gobrrr tune`: try the remedies on the program's own step, keep what is proven, leave a recipe and a receipt."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli import options
from gobrrr.cli.interrupts import Interrupts
from gobrrr.cli.verbs.prove import add_gates, wanted
from gobrrr.errors import OPEN, UNMEASURED, GobrrrError
from gobrrr.pipeline import redaction

if TYPE_CHECKING:
    from gobrrr.trial.edit.program_edit import ProgramEdit
    from gobrrr.trial.gate.rule import Gate
    from gobrrr.trial.receipt.receipt import Receipt


def prepare(parser: argparse.ArgumentParser) -> None:
    """All options stand before the program."""
    parser.usage = "gobrrr tune [options] script.py [args] | -m module [args] | -- command [args]"
    options.add_folder(parser, "the results")
    options.add_minutes(parser, 10.0)
    parser.add_argument(
        "--try", dest="named", type=names, default=(), metavar="A,B",
        help="remedies to try whatever the diagnosis says; semantic ones are tried only so",
    )  # fmt: skip
    parser.add_argument("--without", type=names, default=(), metavar="A,B", help="remedies not to try")
    parser.add_argument("--remedies", "--only", dest="only", type=names, default=(), metavar="A,B", help="these alone")
    parser.add_argument(
        "--objective", choices=("time", "memory", "throughput", "energy"), default="time",
        help="what to make smaller: time, the time of a step; memory, its peak, whatever the step then takes; "
        "throughput, the time per sample; energy, the joules of a step (time)",
    )  # fmt: skip
    parser.add_argument(
        "--patch", action="append", default=[], metavar="DIFF", help="race this edit too; may be given again"
    )
    parser.add_argument(
        "--propose", type=command_line, metavar="CMD",
        help="run CMD for each finding, which it gets as JSON on stdin, and race the diff on its stdout; CMD runs "
        "with your rights, in a copy of this folder",
    )  # fmt: skip
    add_gates(parser)
    parser.add_argument("--resume", metavar="DIR", help="go on with a tuning that was interrupted")
    parser.add_argument("--seed", type=int, default=0, help="of the order of blocks (0)")
    parser.add_argument("--json", action="store_true", help="write the receipt as JSON to stdout (gobrrr.receipt/1)")
    options.add_writes(parser)
    options.add_price(parser)
    options.add_redact(parser)


def run(args: argparse.Namespace) -> int:
    """Diagnose, try, confirm, write; Ctrl-C leaves a valid receipt of what was finished."""
    from gobrrr.cli.reading.report import put_json
    from gobrrr.cli.verbs import run as run_verb
    from gobrrr.pipeline import tuning
    from gobrrr.system import run_folder
    from gobrrr.trial.arm.ranks import JOBS
    from gobrrr.trial.sandbox import workspace
    from gobrrr.trial.statistics.objective import OBJECTIVES

    command, per_hour = run_verb.command_of(args.program), options.price(args)
    options.check_ranks(command, allowed=JOBS)
    workspace.check(Path.cwd())
    limits = options.write_limits(args)
    patches = options.patches(args.patch, Path.cwd())
    if len({each.name for each in patches}) < len(patches):
        raise GobrrrError("two patches have the same name", "rename one of the files")
    words, gates = wanted(args.accept, args.measure)
    if gates:
        return _behind_gates(command, patches, words, gates, args)
    if words:
        raise GobrrrError("tune --accept takes a gate", "--accept 'accuracy >= -0.5%'")
    folder = _resumed(args.resume) if args.resume else run_folder.of_run(args.folder, command, "tune-")
    wishes = tuning.Wishes(
        seconds=args.minutes * 60, named=args.named, without=args.without, only=args.only, seed=args.seed,
        limits=limits, redact=args.redact, objective=OBJECTIVES[args.objective], propose=args.propose or "",
        patches=patches,
    )  # fmt: skip
    with Interrupts() as interrupts:
        outcome = tuning.tune(command, Path.cwd(), folder, wishes, sys.stderr, interrupts.at_first)
        tuning.tell(outcome, redaction.shown(args.program, args.redact), sys.stderr, per_hour)
    put_json(outcome.receipt, args)
    return exit_code(outcome.receipt, interrupts.exit_code)


def _behind_gates(
    command: list[str], patches: tuple[ProgramEdit, ...], words: frozenset[str], gates: tuple[Gate, ...],
    args: argparse.Namespace,
) -> int:  # fmt: skip
    """Search edits that change the numbers of a program that only infers."""
    from gobrrr.cli.reading.report import put_json
    from gobrrr.pipeline import proving
    from gobrrr.pipeline.file_names import PAGE, PATCH, RECEIPT
    from gobrrr.pipeline.lossy import searching
    from gobrrr.pipeline.tuning import Wishes
    from gobrrr.remedies.edits.lossy import FORMS
    from gobrrr.report.forms import formats
    from gobrrr.system import run_folder
    from gobrrr.trial.arm.ranks import launcher
    from gobrrr.trial.statistics.objective import WHOLE

    others = [word for word, given in (("--resume", args.resume), ("--propose", args.propose), ("--try", args.named),
                                       ("--objective", args.objective != "time")) if given]  # fmt: skip
    if others or launcher(command):
        raise GobrrrError(f"a gate goes with no {others[0] if others else 'torchrun'}", "leave that out")
    known = [*(each.name for each in patches), *(each.name for each in FORMS)]
    if unknown := [name for name in (*args.only, *args.without) if name not in known]:
        raise GobrrrError(f"{unknown[0]} is no edit that is searched behind a gate", f"there are {', '.join(known)}")
    asked = proving.Asked(patches, None, words, {}, args.minutes * 60, args.seed, options.write_limits(args),
                          args.redact, WHOLE, gates)  # fmt: skip
    folder = run_folder.of_run(args.folder, command, "tune-")
    allowed = Wishes(without=args.without, only=args.only).allow
    with Interrupts() as interrupts:
        receipt = searching.search(command, Path.cwd(), folder, asked, allowed, sys.stderr, interrupts.at_first)
    left = [name for name in (RECEIPT, PAGE, PATCH) if (folder / name).is_file()]
    next_command = shlex.join(["git", "apply", str(folder / PATCH)]) if PATCH in left else ""
    formats.show(receipt, sys.stderr, formats.View(next_command=next_command))
    sys.stderr.write(f"files     {', '.join(left)} in {folder}\n")
    put_json(receipt, args)
    return exit_code(receipt, interrupts.exit_code)


def exit_code(receipt: Receipt, interrupted: int = 130) -> int:
    """0: something was kept, or nothing helps. OPEN: something may help that there was no time to confirm, or to try.
    UNMEASURED: nothing is known of any remedy. `interrupted`: of what did not come to its end, 128 and the signal."""
    if not receipt.complete:
        return interrupted
    if not receipt.measured:
        return UNMEASURED
    ends = [trial.verdict for trial in receipt.trials if trial.purpose in ("guard", "final")]
    answered = not receipt.likely or (ends and ends[-1] not in ("inconclusive", "failed"))
    return 0 if receipt.kept or (answered and not receipt.left) else OPEN


def _resumed(folder: str) -> Path:
    """The folder of an earlier tuning. Raises GobrrrError for what is none, and where a link would lead out of it."""
    from gobrrr.pipeline.file_names import LEFT

    found = Path(folder)
    if not any((found / name).is_file() for name in LEFT):
        raise GobrrrError(f"{folder} holds no tuning to go on with", "name the folder that `gobrrr tune` wrote into")
    for entry in (*found.iterdir(), *(found / "diagnosis").glob("*")):
        if entry.is_symlink():
            raise GobrrrError(f"{entry} is a symbolic link, and gobrrr tune makes none", "tune into a new folder")
    return found


def command_line(text: str) -> str:
    """A command as a shell would read it, of one word at least."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}: {error}") from None
    if not words:
        raise argparse.ArgumentTypeError("names no command")
    return text


def names(text: str) -> tuple[str, ...]:
    """Words between commas."""
    return tuple(filter(None, (word.strip() for word in text.split(","))))
