"""`gobrrr sweep`: which value of a setting serves best, measured in turns: batch size, workers, any argument."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli import options
from gobrrr.cli.interrupts import Interrupts
from gobrrr.cli.verbs.prove import accepted, wanted
from gobrrr.errors import GobrrrError

if TYPE_CHECKING:
    from gobrrr.trial.gate.rule import Gate


def prepare(parser: argparse.ArgumentParser) -> None:
    """All options stand before the program."""
    parser.usage = "gobrrr sweep [options] script.py [args] | -m module [args] | -- command [args]"
    parser.add_argument(
        "--vary", metavar="NAME=A,B,C", type=vary, help="another setting: an argument or a name in the source"
    )
    parser.add_argument(
        "--latency", metavar="TIME", type=options.duration, help="the most that 99 %% of steps may take, as 50ms"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order of blocks (0)")
    options.add_price(parser)
    parser.add_argument(
        "--objective", choices=("time", "energy"), default="time", help="what the best value has least of (time)"
    )
    parser.add_argument(
        "--accept", type=accepted, action="append", default=[], metavar="GATE",
        help="'accuracy >= -0.5%%': what each value may lose of your measure against the program's own",
    )  # fmt: skip
    options.add_measure(parser)
    parser.add_argument("--auto", action="store_true", help="sizes of its own choice, eight at most (without --batch)")
    add_shared(parser)


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add the options that `fit` has, too."""
    parser.add_argument("--batch", metavar="A,B,C", type=sizes, help="batch sizes to measure")
    parser.add_argument("--memory", metavar="SIZE", type=options.size, help="memory to fit into, as 24GiB")
    parser.add_argument("--device", action="store_true", help="--memory is an accelerator's: add its context")
    options.add_folder(parser, "the results")
    options.add_minutes(parser, 5.0)
    parser.add_argument("--json", action="store_true", help="write what was found as JSON to stdout (gobrrr.sweep/1)")
    options.add_writes(parser)
    options.add_redact(parser)


def run(args: argparse.Namespace) -> int:
    """Find the setting, measure, tell; 0 where something was measured."""
    if (args.vary is not None) + bool(args.batch) + args.auto > 1:
        raise GobrrrError("--batch, --auto and --vary each say what is measured", "give one of them")
    name, values = args.vary or ("batch", args.batch or ())
    price = options.price(args)
    from gobrrr.trial.statistics.objective import OBJECTIVES

    return measured(args, name, values, latency_ns=args.latency, seed=args.seed, price_per_hour=price,
                    objective=OBJECTIVES[args.objective], gates=_gates(args, values))  # fmt: skip


def _gates(args: argparse.Namespace, values: Sequence[str]) -> tuple[Gate, ...]:
    """Return what each value is held against. Raises GobrrrError."""
    words, gates = wanted(args.accept, args.measure)
    if words:
        raise GobrrrError(f"a sweep takes gates alone, not {', '.join(sorted(words))}", "--accept 'accuracy >= -0.5%'")
    if gates and not values:
        raise GobrrrError("a sweep with gates needs the values that it measures", "--vary hidden=256,384,512")
    return gates


def measured(args: argparse.Namespace, name: str, values: Sequence[str], **how: object) -> int:
    """Sweep and tell. `how`: as of pipeline.sweeping.Wanted."""
    from gobrrr.cli.reading.report import put_json
    from gobrrr.cli.verbs import run as run_verb
    from gobrrr.pipeline import sweeping
    from gobrrr.pipeline.file_names import PAGE, SWEEP
    from gobrrr.report.memory.sweep import blocks
    from gobrrr.report.text.page import show
    from gobrrr.system import run_folder
    from gobrrr.trial.arm import meters
    from gobrrr.trial.edit import setting
    from gobrrr.trial.sandbox import workspace

    command = run_verb.command_of(args.program)
    options.check_ranks(command, "sweep")
    workspace.check(Path.cwd())
    if why := meters.unable():
        raise GobrrrError(why, meters.HINT)
    found = setting.find(name, command, Path.cwd())
    is_batch = setting.is_batch(name)
    if not values and not (is_batch and found.now.isdigit()):
        raise GobrrrError(f"the program's own {found.name} is not known", "name values: --batch 8,16,32")
    wanted = sweeping.Wanted(
        found, tuple(values), is_batch, memory=args.memory, device=args.device, seconds=args.minutes * 60,
        limits=options.write_limits(args), redact=args.redact,
    )._replace(**how)  # type: ignore[arg-type]  # fmt: skip
    folder = run_folder.of_run(args.folder, command, "sweep-")
    sys.stderr.write(f"gobrrr: varying {found.name} ({found.where}, now {found.now or 'unknown'})\n")
    with Interrupts() as interrupts:
        swept = sweeping.sweep(command, Path.cwd(), folder, wanted, sys.stderr, interrupts.at_first)
    sys.stderr.write("\n")
    show(blocks(swept), sys.stderr)
    sys.stderr.write(f"files     {SWEEP}, {PAGE} in {folder}\n")
    put_json(swept, args)
    return 0 if swept.complete else int(interrupts.exit_code)


def vary(text: str) -> tuple[str, tuple[str, ...]]:
    """'num_workers=0,1,2' as (name, values)."""
    name, equals, values = text.partition("=")
    found = tuple(filter(None, (value.strip() for value in values.split(","))))
    if not equals or not name.strip() or len(found) < 2:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}: num_workers=0,2,4")
    return name.strip(), tuple(dict.fromkeys(found))


def sizes(text: str) -> tuple[str, ...]:
    """'8,16,32': whole numbers from 1 on."""
    found = tuple(dict.fromkeys(str(options.at_least_one(word.strip())) for word in text.split(",") if word.strip()))
    if not found:
        raise argparse.ArgumentTypeError("names no batch size: 8,16,32")
    return found
