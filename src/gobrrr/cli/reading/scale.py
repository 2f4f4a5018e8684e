"""`gobrrr scale`: what would a recorded run's step be on more ranks, over which network?"""

from __future__ import annotations

import argparse
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli import options

if TYPE_CHECKING:
    from gobrrr.ledger.job.forecast import Network

MOST = 1 << 20
"""Ranks that are forecast at most."""
_BITS = {"Mb/s": 1e6 / 8, "Gb/s": 1e9 / 8, "MB/s": 1e6, "GB/s": 1e9}


def prepare(parser: argparse.ArgumentParser) -> None:
    """The recording, the ranks, the network."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="FOLDER",
                        help="folder of a run (one of each machine), or the job.json of its ranks")  # fmt: skip
    parser.add_argument("--ranks", type=_ranks, default=(2, 4, 8), metavar="A,B,C", help="numbers of ranks (2,4,8)")
    parser.add_argument(
        "--link", type=_link, metavar="RATE,LATENCY",
        help="what carries a rank's messages, as 100Gb/s,5us (else as this run measured it)",
    )  # fmt: skip
    parser.add_argument(
        "--as", dest="plan", choices=("ddp", "fsdp2"), default="ddp",
        help="how a program that ran on one rank would share its gradients (ddp)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="write the forecast as JSON to stdout (gobrrr.scaled/1)")


def run(args: argparse.Namespace) -> int:
    """Forecast and tell; 0 where something could be said."""
    from gobrrr.cli.reading.report import put_json
    from gobrrr.pipeline import runs
    from gobrrr.report.text.page import show
    from gobrrr.report.told.job import of_forecast

    found = runs.scale(args.runs, args.ranks, args.link, args.plan)
    show(of_forecast(found), sys.stderr)
    put_json(found, args)
    return 0


def _ranks(text: str) -> tuple[int, ...]:
    found = tuple(sorted({options.at_least_one(word.strip()) for word in text.split(",") if word.strip()}))
    if not found or found[-1] > MOST:
        raise argparse.ArgumentTypeError(f"names no number of ranks up to {MOST:,}: 8,64,1024")
    return found


def _link(text: str) -> Network:
    from gobrrr.ledger.job.forecast import REACHED, Network

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([GM][bB]/s)\s*,\s*(\S+)", text.strip())
    rate = float(match[1]) * _BITS[match[2]] if match is not None else 0.0
    if match is None or not 0 < rate < math.inf:
        raise argparse.ArgumentTypeError(f"cannot read {text[:40]!r}: name rate and latency, as in 100Gb/s,5us")
    return Network(rate, float(options.duration(match[3])), f"stated: {text.strip()}", REACHED)
