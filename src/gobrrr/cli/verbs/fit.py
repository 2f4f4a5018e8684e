"""`gobrrr fit`: does the program fit into a memory that is not there yet, and which batch is the largest that does?"""

from __future__ import annotations

import argparse
from pathlib import Path

from gobrrr.cli.verbs import sweep
from gobrrr.errors import GobrrrError

SMALL = 16
"""Batch size below which a part of it says too little of how the peak grows."""


def prepare(parser: argparse.ArgumentParser) -> None:
    """All options stand before the program."""
    parser.usage = "gobrrr fit --memory 24GiB [options] script.py [args] | -m module [args] | -- command [args]"
    parser.add_argument(
        "--vary", metavar="NAME=A,B,C", type=sweep.vary, help="numbers of another setting, as max_length=64,128,256"
    )
    sweep.add_shared(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the peaks of a few small batches, or values of another setting, and tell what follows from them."""
    from gobrrr.cli.verbs.run import command_of
    from gobrrr.trial.edit import setting

    if args.memory is None:
        behind = any(word.partition("=")[0] == "--memory" for word in args.program)
        what = "stands behind the program and is taken for its own" if behind else "is missing: how much may it take?"
        raise GobrrrError(f"--memory {what}", "gobrrr fit --memory 24GiB train.py")
    if args.vary is not None and args.batch:
        raise GobrrrError("--vary names the setting itself", "give either --batch or --vary")
    name, values = args.vary or ("batch", args.batch or ())
    if not values:
        now = setting.find("batch", command_of(args.program), Path.cwd()).now
        if not now.isdigit():
            raise GobrrrError("the program's own batch size is not known", "name some: --batch 2,4,8")
        sizes = (int(now) // 8, int(now) // 4, int(now) // 2) if int(now) >= SMALL else (1, 2, 4)
        values = tuple(dict.fromkeys(map(str, sizes)))
    least = 3 if args.vary else 2  # a peak may grow with the square of a length
    if len(values) < least or not all(value.isdigit() and int(value) for value in values):
        example = "--vary max_length=64,128,256" if args.vary else "--batch 2,4,8"
        raise GobrrrError(f"{least} whole numbers are the least that tell how the peak grows", f"as in {example}")
    return sweep.measured(args, name, values, peaks_alone=True)
