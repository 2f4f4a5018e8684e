"""`gobrrr prove`: race an edit against the program as it is, and judge whether it still computes the same."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli import options
from gobrrr.cli.interrupts import Interrupts
from gobrrr.errors import NOT_BETTER, OPEN, REFUSED, UNMEASURED, GobrrrError
from gobrrr.words import ACCEPTABLE

if TYPE_CHECKING:
    from gobrrr.pipeline.proving import Asked
    from gobrrr.trial.edit.program_edit import ProgramEdit
    from gobrrr.trial.gate.rule import Gate
    from gobrrr.trial.receipt.receipt import Receipt, TrialResult


def prepare(parser: argparse.ArgumentParser) -> None:
    """All options stand before the program."""
    parser.usage = "gobrrr prove [options] script.py [args] | -m module [args] | -- command [args]"
    what = parser.add_argument_group("the edit (several: each alone, and the patches together)")
    what.add_argument("--patch", action="append", default=[], metavar="DIFF", help="a unified diff (-: from stdin)")
    what.add_argument("--with", dest="folder_with", metavar="DIR", help="a folder with the edited program")
    what.add_argument("--from", dest="begin", metavar="COMMIT", help="the program as it is: this commit")
    what.add_argument("--to", dest="end", metavar="COMMIT", help="the edited one (default: the working tree)")
    what.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a setting instead of an edit")
    what.add_argument("--args", metavar="WORDS", help="another command line for the script")
    add_gates(parser)
    parser.add_argument(
        "--rename", type=rename, action="append", default=[], metavar="A,B=AB",
        help="parameters A and B of the program are joined in AB of the edited one",
    )  # fmt: skip
    parser.add_argument(
        "--objective", choices=("time", "energy", "fit"), default="time",
        help="energy: does it take less; fit: does the edit make a program end that runs out of memory",
    )  # fmt: skip
    parser.add_argument(
        "--batch", metavar="N", help="with --objective fit: a batch size that fits, at which numbers are compared"
    )
    options.add_folder(parser, "the results")
    options.add_minutes(parser, 5.0)
    parser.add_argument("--seed", type=int, default=0, help="of the order of blocks (0)")
    parser.add_argument("--json", action="store_true", help="write the receipt as JSON to stdout")
    options.add_writes(parser)
    options.add_redact(parser)


def add_gates(parser: argparse.ArgumentParser) -> None:
    """Add --accept and --measure."""
    parser.add_argument(
        "--accept", type=accepted, action="append", default=[], metavar="WHAT",
        help=f"changes of what is computed that you want: {', '.join(ACCEPTABLE)}; or a gate, 'accuracy >= -0.5%%': "
        "numbers may be others, and that measure may lose so much",
    )  # fmt: skip
    options.add_measure(parser)


def run(args: argparse.Namespace) -> int:
    """Check, race, write the receipt; 0 where an edit is faster and right, else by proof.exit_code."""
    from gobrrr.cli.reading.report import put_json
    from gobrrr.cli.verbs import run as run_verb
    from gobrrr.pipeline import proving
    from gobrrr.report.forms import formats
    from gobrrr.system import run_folder
    from gobrrr.trial.arm.ranks import JOBS
    from gobrrr.trial.sandbox import workspace
    from gobrrr.trial.statistics.objective import ENERGY, WHOLE

    command = run_verb.command_of(args.program)
    options.check_ranks(command, "prove", () if args.objective == "fit" else JOBS)
    workspace.check(Path.cwd())
    base, edits = edits_of(args, Path.cwd())
    for edit in edits:
        edit.command(command)  # before anything is started
    words, gates = wanted(args.accept, args.measure)
    if gates and args.objective == "fit":
        raise GobrrrError("a gate judges a program that runs to its end", "leave --objective fit out")
    asked = proving.Asked(
        edits, base, words, dict(args.rename), args.minutes * 60, args.seed, options.write_limits(args),
        args.redact, ENERGY if args.objective == "energy" else WHOLE, gates,
    )  # fmt: skip
    folder = run_folder.of_run(args.folder, command, "prove-")
    if args.objective == "fit":
        return _fit(command, folder, asked, args)
    with Interrupts() as interrupts:
        receipt = proving.prove(command, Path.cwd(), folder, asked, sys.stderr, interrupts.at_first)
    formats.show(receipt, sys.stderr)
    sys.stderr.write(f"files     receipt.json, report.html in {folder}\n")
    put_json(receipt, args)
    return exit_code(receipt) if receipt.complete else interrupts.exit_code


def _fit(command: list[str], folder: Path, asked: Asked, args: argparse.Namespace) -> int:
    """Does the last edit make the program end that runs out of memory?"""
    from gobrrr.cli.reading.report import put_json
    from gobrrr.pipeline import fitting
    from gobrrr.report.memory.fitted import blocks
    from gobrrr.report.text.page import show

    with Interrupts() as interrupts:
        found = fitting.fit(command, Path.cwd(), folder, asked, args.batch or "", sys.stderr, interrupts.at_first)
    sys.stderr.write("\n")
    show(blocks(found), sys.stderr)
    sys.stderr.write(f"files     receipt.json in {folder}\n")
    put_json(found, args)
    return found.exit_code


def edits_of(args: argparse.Namespace, source: Path) -> tuple[ProgramEdit | None, tuple[ProgramEdit, ...]]:
    """Return what all arms begin with, and the edits, the last of them all patches together. Raises GobrrrError."""
    from gobrrr.trial.edit import reading

    base = None
    patches = options.patches(args.patch, source)
    edits = [*patches, *([reading.from_folder(Path(args.folder_with), source)] if args.folder_with else [])]
    if args.end and not args.begin:
        raise GobrrrError("--to needs --from: the commit that the program is compared with", "--from HEAD~1 --to HEAD")
    if args.begin:
        base, edit = reading.from_commits(args.begin, args.end or "", source)
        edits.append(edit)
    edits += [reading.from_env(text) for text in args.env]
    edits += [reading.from_args(args.args)] if args.args is not None else []
    if not edits:
        late = any(word.startswith(("--patch", "--with", "--from", "--env", "--args")) for word in args.program)
        hint = "before the program: --patch DIFF, --with DIR, --from COMMIT, --env A=B or --args"
        raise GobrrrError("no edit is given to prove" + ": options stand before the program" * late, hint)
    if len({each.name for each in edits}) < len(edits):
        raise GobrrrError("two edits have the same name", "rename one of the files")
    if base is not None and len(edits) > 1:
        raise GobrrrError("--from is of two commits and takes no other edit", "prove the other edit by itself")
    together = [reading.together(patches, source)] if len(patches) > 1 else []
    return base, (*edits, *together)


def wanted(accept: Sequence[frozenset[str] | str], measures: Sequence[str]) -> tuple[frozenset[str], tuple[Gate, ...]]:
    """Return the words of all --accept, and the gates with where each is measured. Raises GobrrrError."""
    from gobrrr.trial.gate import rule

    rules = [each for each in accept if isinstance(each, str)]
    if measures and len(measures) != len(rules):
        raise GobrrrError(f"{len(measures)} --measure for {len(rules)} gates", "name one for each gate, in their order")
    gates = (rule.parse(*each) for each in zip_longest(rules, measures, fillvalue=""))
    return frozenset().union(*(each for each in accept if not isinstance(each, str))), tuple(gates)


def accepted(text: str) -> frozenset[str] | str:
    """Words between commas, all of them known, or a gate as it stands."""
    if "<" in text or ">" in text:
        return text
    words = frozenset(filter(None, (word.strip() for word in text.split(","))))
    if unknown := sorted(words - ACCEPTABLE.keys()):
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(ACCEPTABLE)}")
    return words


def rename(text: str) -> tuple[str, tuple[str, ...]]:
    """'a.weight,b.weight=ab.weight' as (new name, the old ones)."""
    old, equals, new = (part.strip() for part in text.partition("="))
    names = tuple(filter(None, (name.strip() for name in old.split(","))))
    if not (equals and new and names):
        raise argparse.ArgumentTypeError(f"cannot read {text!r}: a.weight,b.weight=ab.weight")
    return new, names


def exit_code(receipt: Receipt) -> int:
    """0: an edit is better, with the same numbers. Else the gravest of its edits' codes, as docs/prove/exit-codes.md
    orders them."""
    if receipt.kept:
        return 0
    codes = {_exit_code(trial) for trial in receipt.trials} or {UNMEASURED}
    return next(code for code in (REFUSED, UNMEASURED, OPEN, NOT_BETTER) if code in codes)


def _exit_code(trial: TrialResult) -> int:
    if trial.guard.red:
        return REFUSED
    if trial.verdict == "failed":
        return UNMEASURED
    settled = trial.verdict in ("slower", "more energy") or (trial.verdict == "equivalent" and trial.guard.green)
    return NOT_BETTER if settled else OPEN
