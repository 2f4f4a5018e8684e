"""A recording of OpInfo's calls with what torch says of them, so that every formula is held to it in a second.

    python -m tests.ledger.ops.recorded [--every 4]

Writes opinfo-calls.json.gz: of each op its first calls that differ, each with the fields of the profiler's event, the
FLOPs that torch.utils.flop_counter gives (null where it knows none) and the bytes behind its tensors, addresses
enumerated. Nothing in it comes from our formulas.
"""

from __future__ import annotations

import argparse
import gzip
import json
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from tests.ledger.ops.recorder import Recorded, traffic
from tests.ledger.ops.test_opinfo_work import Tally, flop_counter, walk

CALLS = Path(__file__).parent / "opinfo-calls.json.gz"
AT_MOST_EACH = 10
"""Calls kept of an op: more shapes of the same kind tell nothing more."""


class Recording(Tally):
    """Keeps the calls instead of their prices."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, dict[str, list[Any]]] = defaultdict(dict)

    def count(self, call: Recorded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """The call, its FLOPs, the bytes it reads by argument, and writes."""
        kept, key = self.kept[call.name], json.dumps(call)
        if key in kept or len(kept) >= AT_MOST_EACH or call.name.startswith("torch_nn::"):
            return
        inner = [list(result.shape)] if call.name == "aten::index" else []
        reads, writes = traffic(func, args, kwargs, result)
        kept[key] = [*call, inner, flop_counter(call, func, args, kwargs, result), reads, writes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=4, help="every n-th sample of each op")
    tally = Recording()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for device in (torch.cuda, torch.xpu, torch.mtia):
            device.manual_seed_all = lambda seed: None  # each sample seeds all of them, two thirds of the time
        walk(parser.parse_args().every, tally)
    rows = [json.dumps(row) for name in sorted(tally.kept) for row in tally.kept[name].values()]
    text = f'{{"torch": "{torch.__version__}",\n"calls": [\n' + ",\n".join(rows) + "\n]}\n"
    CALLS.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(rows)} calls of {len(tally.kept)} ops, {CALLS.stat().st_size} bytes; broken: {tally.broken[:3]}")


if __name__ == "__main__":
    main()
