"""`gobrrr compare`: two recordings of one program, from runs or traces, step, ledger, findings and ops side by side."""

from __future__ import annotations

import argparse

from gobrrr.cli import options
from gobrrr.cli.reading.report import add_formats, check_target, format_of, show
from gobrrr.report.forms import formats
from gobrrr.report.forms.formats import View


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("a", metavar="A", help="a folder that gobrrr run has written, or a trace")
    parser.add_argument("b", metavar="B", help="the other one")
    parser.add_argument("--ops", type=int, default=12, metavar="N", help="ops to list (12)")
    add_formats(parser)
    options.add_price(parser)


def run(args: argparse.Namespace) -> int:
    """Read both, compare, tell; raises GobrrrError for what cannot be read."""
    from gobrrr.pipeline.judging import compare
    from gobrrr.report.text.progress import Patience

    formats.check(form := format_of(args), "comparison")
    per_hour = options.price(args)
    check_target(args.output, (args.a, args.b))
    with Patience(f"reading {args.a} and {args.b}"):
        found = compare(args.a, args.b, per_hour)
    show(found, form, args.output, View(num_ops=max(0, args.ops)))
    return 0
