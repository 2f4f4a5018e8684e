"""`gobrrr verify`: measure a receipt's recipe once more, on this machine, and say whether it still holds.

A receipt is a file, and its command a stranger's until this user's own mark says otherwise: it is shown, and started
when somebody agrees. A command that is typed here needs no asking.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from gobrrr.cli import options
from gobrrr.errors import NOT_BETTER, OPEN, REFUSED, GobrrrError

if TYPE_CHECKING:
    from gobrrr.guard.model.verdict import Guarded
    from gobrrr.trial.race.referee import Program
    from gobrrr.trial.receipt.receipt import Measured, Receipt, Speedup

LONGEST_STEP_NS = 600e9
"""Longest step in ns that a receipt may claim: how long verify waits follows from it."""
LONGEST_WORD, LONGEST_COMMAND = 128 << 10, 1 << 20
"""Characters of a word, which Linux bounds (MAX_ARG_STRLEN), and of a command: half of what it takes by default."""
OTHER_SCRIPT = "the script is not the one that the receipt was measured with: what is found here is not of that one"


def prepare(parser: argparse.ArgumentParser) -> None:
    """The receipt, how long it may take, and the program where the receipt's own is not to be taken."""
    parser.usage = "gobrrr verify [options] receipt.json [-- script.py [args]]"
    parser.add_argument("receipt", help="receipt.json of a tuning")
    parser.add_argument("program", nargs="*", help="the program, where the receipt does not hold all of its command")
    parser.add_argument(
        "--minutes", type=options.more_than_zero, default=2.0, metavar="M",
        help="time for the measurement, starts among it (2)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="of the order of blocks (1)")
    options.add_writes(parser)
    parser.add_argument(
        "--json", action="store_true", help="write what was found as JSON to stdout (gobrrr.verified/1)"
    )
    parser.add_argument("--yes", action="store_true", help="start the receipt's command without asking")


def run(args: argparse.Namespace) -> int:
    """Measure and guard; 0 where what was kept is better here, with the same numbers, else as in exit_code."""
    from gobrrr.cli import consent
    from gobrrr.remedies import registry
    from gobrrr.trial.receipt import receipt as receipts
    from gobrrr.trial.statistics.objective import OBJECTIVES

    file = Path(args.receipt)
    before = receipts.read(file)
    if not before.kept or before.speedup is None:
        raise GobrrrError(f"the receipt {file} holds no remedy that was kept, so there is nothing to measure again",
                          "tune the program again: gobrrr tune script.py")  # fmt: skip
    if before.objective not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        raise GobrrrError(f"{file} is for another objective than {known}", "verify it with the gobrrr that wrote it")
    _check_figures(before, file)
    limits = options.write_limits(args)
    program = _typed(before, args.program) if args.program else _named(before, file)
    edited = any(name in before.edits for name in before.kept)
    if not args.yes and (edited or not args.program) and not receipts.is_own(before):
        why = "you did not write this receipt on this machine, or it was changed"
        consent.ask(program.command, str(program.source), why)
    remedies = [name for name in before.kept if name not in before.edits]
    registry.environment(remedies, before.options)  # both are checked before anything is started
    with tempfile.TemporaryDirectory(prefix="gobrrr-verify-", ignore_cleanup_errors=True) as folder:
        program = program._replace(limits=limits)
        return _measured(before, _with_edits(before, program), Path(folder), args)


def _with_edits(before: Receipt, program: Program) -> Program:
    """The program with the edits that were kept on trial. Raises GobrrrError where one does not apply any more."""
    from gobrrr.trial.edit import reading
    from gobrrr.trial.edit.treatment import EditOnTrial
    from gobrrr.trial.gate import rule

    told = {name: each for name, each in before.edits.items() if name in before.kept}
    if commits := [name for name, each in told.items() if each.of_commits]:
        raise GobrrrError(f"the receipt is of two commits, {commits[0]}", "prove them again: gobrrr prove --from --to")
    edits = {name: EditOnTrial(reading.told(name, each.diff, each.env, each.args, program.source),
                               frozenset(each.accepted), each.renames,
                               tuple(rule.parse(*gate) for gate in each.gates))
             for name, each in told.items()}  # fmt: skip
    return program._replace(edits=edits)


def _check_figures(before: Receipt, file: Path) -> None:
    """Raises GobrrrError for a receipt whose figures are none, or of another objective than it says."""
    claimed = [each for each in (before.speedup, before.memory, before.energy) if each is not None]
    if any(not 0 < each.low <= each.median <= each.high for each in claimed):
        raise GobrrrError(f"the receipt {file} holds a figure outside its own interval", "tune the program again")
    own = {"memory": before.memory, "energy": before.energy}
    if any((name == before.objective) != (figure is not None) for name, figure in own.items()):
        raise GobrrrError(f"{file} has no figure of its objective, {before.objective}", "tune the program again")


def _typed(before: Receipt, words: list[str]) -> Program:
    """The program that was typed, in this folder. Raises GobrrrError where it is not the receipt's."""
    from gobrrr.cli.verbs.run import command_of
    from gobrrr.pipeline import redaction
    from gobrrr.system.escape import command_line

    command = command_of(words)
    stored, typed = _as_typed(before.command), _as_typed(command)
    if len(stored) != len(typed) or not all(map(_fits, stored, typed)):
        why = f"this is not the program of the receipt, which is {command_line(stored)}"
        raise GobrrrError(why, "type that command, with its masked values in full")
    return _told(before, command, redaction.shown(command), Path.cwd())


def _told(before: Receipt, command: Sequence[str], shown: Sequence[str], source: Path) -> Program:
    """The program, once it was shown; where its script is not the receipt's, a line says so before anything runs."""
    from gobrrr.cli import consent, streams
    from gobrrr.pipeline.tuning import script_digest
    from gobrrr.trial.race.referee import Program
    from gobrrr.trial.sandbox import workspace

    workspace.check(source)
    kept = ", ".join(before.kept)
    doing = f"starting this program ten to thirty times, in copies of its folder, plain and with {kept}"
    consent.show(shown, str(source), doing)
    for name, edit in before.edits.items():
        if name in before.kept:
            consent.show_edit(name, edit)
    here = script_digest(command, source)
    if before.script_sha256 and here and here != before.script_sha256:
        streams.say(f"gobrrr: receipt: {OTHER_SCRIPT}")
    step_ns = min(max(before.step_ns or 0.0, 0.0), LONGEST_STEP_NS)
    return Program(tuple(command), source, step_ns, before.loop, options=before.options)


def _as_typed(command: Sequence[str]) -> list[str]:
    """A command as it stands behind a verb: without the Python that runs a script, any other behind two dashes."""
    python = bool(command) and PurePath(command[0]).name.startswith("python")
    return list(command[1:]) if python else ["--", *command]


def _fits(stored: str, word: str) -> bool:
    """Say whether a word of the command line is what a receipt stored, but for what is masked there."""
    from gobrrr.system.secrets import MASK

    head, masked, rest = stored.partition(MASK)
    return word.startswith(head) and word.endswith(rest.rpartition(MASK)[2]) if masked else word == stored


def _named(before: Receipt, file: Path) -> Program:
    """The program that the receipt names. Raises GobrrrError."""
    from gobrrr.system.secrets import MASK

    if not before.command:
        raise GobrrrError(f"{file} names no program", "tune again, or type it: gobrrr verify receipt.json -- script.py")
    if not _can_start((*before.command, before.folder)):
        raise GobrrrError(f"{file} names a command that cannot be started", "tune the program again")
    if any(MASK in word for word in (*before.command, before.folder)):
        typed = f"gobrrr verify {shlex.quote(str(file))} -- {shlex.join(_as_typed(before.command))}"
        raise GobrrrError(f"{file} does not hold all of its command: a key or password was masked", f"type it: {typed}")
    source = Path(before.folder).absolute()
    if not source.is_dir():
        raise GobrrrError(f"the folder of the program is gone: {source}", "put it back, or tune again")
    return _told(before, before.command, before.command, source)


def _can_start(words: Sequence[str]) -> bool:
    """Say whether the system can start a command of these words: none with a NUL in it, none too long."""
    return (
        not any("\0" in word for word in words)
        and all(len(word) < LONGEST_WORD for word in words)
        and sum(map(len, words)) < LONGEST_COMMAND
    )


def _measured(before: Receipt, program: Program, folder: Path, args: argparse.Namespace) -> int:
    """Measure, guard, and hold it against the receipt."""
    from gobrrr.report.told import gates
    from gobrrr.report.told.speedup_text import figures, numbers, speed
    from gobrrr.system.escape import plain

    found, guarded = _repeated(before, program, folder, args)
    code, verdict = exit_code(found, guarded), plain(_verdict(before, found, guarded))
    if args.json:
        from gobrrr.cli.reading.report import put_json

        put_json({"schema": "gobrrr.verified/1", "verdict": verdict, "kept": before.kept, "claimed": before.speedup,
                  "here": found, "guard": guarded}, args)  # fmt: skip
        return code
    print(plain(f"receipt   {figures(before)}, numbers {numbers(before.guard, before.kept)}, {before.date}"))
    print(f"here      {figures(found)}, {speed(found.verdict)}, numbers {numbers(guarded, before.kept)}")
    for gate in guarded.gates:
        print(f"gate      {plain(gates.sentence(gate))}")
    for reason in guarded.reasons if not guarded.green else ():
        print(f"          {plain(reason)}", file=sys.stderr)
    print(f"verdict   {verdict}")
    return code


def exit_code(found: Measured, guarded: Guarded) -> int:
    """0: better here, with the same numbers. Else see docs/prove/exit-codes.md."""
    from gobrrr.trial.statistics.objective import BETTER

    if guarded.red:
        return REFUSED
    if found.verdict in ("inconclusive", "failed") or not guarded.green:
        return OPEN
    return 0 if found.verdict in BETTER else NOT_BETTER


def _verdict(before: Receipt, found: Measured, guarded: Guarded) -> str:
    """Say whether the repeated measurement confirms the receipt; where it is open, what would settle it."""
    from gobrrr.trial.statistics.objective import BETTER

    if found.verdict in BETTER and guarded.green:
        return _of_the_factor(before, found) + _of_the_numbers(before.guard, guarded, before.kept)
    if found.verdict == "inconclusive" and not guarded.red:
        return f"open: {found.reason or 'the interval has 1 in it'} (--minutes)"
    return "does not hold here"


def _of_the_factor(before: Receipt, found: Measured) -> str:
    """Whether what was made smaller is what was claimed, and of memory the price in time, too."""
    from gobrrr.report.told.speedup_text import gain
    from gobrrr.trial.statistics.objective import OBJECTIVES, TIME

    if not _found_here(gain(before), gain(found), OBJECTIVES[before.objective].band):
        return f"still {found.verdict}, by another factor"
    if not _found_here(before.speedup, found.speedup, TIME.band):
        return f"still {found.verdict}, but a step does not take what the receipt says"
    return "holds"


def _found_here(claimed: Speedup | None, here: Speedup | None, band: float) -> bool:
    """Whether the claim's median lies in the interval found here, widened by what two processes differ by. The claim's
    own interval does not count: the wider it is, the easier it would be to hold."""
    if claimed is None or here is None:
        return False
    return here.low * (1 - band) <= claimed.median <= here.high * (1 + band)


def _of_the_numbers(claimed: Guarded, here: Guarded, kept: Sequence[str]) -> str:
    """Said where they are worse than claimed, though still green."""
    from gobrrr.guard.model.verdict import VERDICTS
    from gobrrr.report.told.speedup_text import numbers

    best = VERDICTS.index(claimed.verdict) if claimed.verdict in VERDICTS else -1
    if VERDICTS.index(here.verdict) <= best:
        return ""
    if (claimed.verdict, here.verdict) == ("exact", "equivalent"):
        return ", but numbers are not equal bit for bit"
    return f", but numbers {numbers(here, kept)} (claimed: {numbers(claimed, kept)})"


def _repeated(before: Receipt, program: Program, folder: Path, args: argparse.Namespace) -> tuple[Measured, Guarded]:
    """The trial and the guard, told on stderr while they run. Raises GobrrrError where nothing was measured."""
    from gobrrr.report.text import tuning_progress
    from gobrrr.trial.arm.process_group import adopted
    from gobrrr.trial.race.candidates import Plan
    from gobrrr.trial.race.referee import LiveReferee
    from gobrrr.trial.sandbox.workspace import mark_output
    from gobrrr.trial.statistics.objective import OBJECTIVES, TIME, WHOLE

    mark_output(folder)
    kept, objective = before.kept, OBJECTIVES[before.objective]
    objective = WHOLE if before.verb == "prove" and objective is TIME else objective
    seconds, plan = args.minutes * 60, Plan((), kept)
    listener = tuning_progress.listener(sys.stderr, seconds, objective)
    referee = LiveReferee(program, folder, seed=args.seed, seconds=seconds, progress=listener.progress,
                          objective=objective)  # fmt: skip
    with adopted(), listener:
        listener.began(plan, 1)
        found = referee.measure(plan)
        if found.speedup is None:
            why = f"the recipe could not be measured: {found.reason}"
            raise GobrrrError(why, "run the program without gobrrr and mend it first")
        listener.guarding(kept)
        return found, referee.with_account(referee.guard(kept), found, kept)
