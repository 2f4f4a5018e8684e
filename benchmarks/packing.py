"""Packing and bucketing on laws of lengths: how full, how near the bound, how long beside what others use.

    python -m benchmarks.packing [--peers PYTHON]

--peers is an interpreter with trl and transformers: TRL's packing and transformers' group_by_length then stand beside,
on the same lengths. Seconds are of the process, best of three; what counts is the ratio to a first-fit over a plain
list on the same machine. Writes benchmarks/results/packing-DATE.json and .md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.stamp import stamp
from gobrrr.data import BucketBatchSampler, PackingDataset, efficiency, lower_bound, order_distance, pack, simulate
from gobrrr.data.packing.buckets import padded_efficiency

NUMBER, FEW, BATCH, RANKS = 100_000, 10_000, 32, 8
WINDOWS = (64, 256, 1024, 4096)
RESULTS = Path(__file__).parent / "results"
PEERS = """
import json, sys, time
import numpy as np, pyarrow as pa, torch
from transformers.trainer_pt_utils import get_length_grouped_indices
from trl.data_utils import _pack_bfd
cases = json.load(open(sys.argv[1]))
found = {}
for name, (lengths, capacity) in cases.items():
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = pa.array(np.zeros(offsets[-1], dtype=np.int32))
    table = pa.table({"input_ids": pa.LargeListArray.from_arrays(pa.array(offsets), tokens)})
    seconds = []
    for _ in range(3):
        start = time.process_time()
        packed = _pack_bfd(table, capacity)
        seconds.append(time.process_time() - start)
    start = time.process_time()
    order = get_length_grouped_indices(lengths, 32, generator=torch.Generator().manual_seed(0))
    grouped = time.process_time() - start
    sizes = np.array(lengths)[order]
    begins = np.arange(0, len(sizes), 32)
    rows = np.diff(np.append(begins, len(sizes)))
    found[name] = {"trl_bins": len(packed), "trl_seconds": min(seconds), "group_by_length_seconds": grouped,
                   "group_by_length": float(sizes.sum() / (np.maximum.reduceat(sizes, begins) * rows).sum())}
print(json.dumps(found))
"""


def laws() -> dict[str, tuple[np.ndarray, int]]:
    """Three drawn from distributions that data sets have, one drawn flat, one real, one that nothing can pack."""
    draw = np.random.RandomState(0)
    drawn = {
        "log-normal 5.2/0.95, as instructions": (draw.lognormal(5.2, 0.95, NUMBER), 2048),
        "log-normal 4.0/0.9, as posts": (draw.lognormal(4.0, 0.9, NUMBER), 512),
        "gamma, as sentences": (draw.gamma(4, 3.2, NUMBER) + 3, 128),
        "uniform": (draw.randint(1, 2049, NUMBER), 2048),
        "paragraphs of Python's standard library": (paragraphs(), 256),
        "all 0.51 of the capacity": (np.full(NUMBER, 522), 1024),
    }
    return {name: (np.clip(lengths, 1, cap).astype(np.int64), cap) for name, (lengths, cap) in drawn.items()}


def paragraphs() -> np.ndarray:
    """Words between blank lines of the sources that came with this Python."""
    sources = sorted(Path(argparse.__file__).parent.glob("*.py"))
    texts = "\n\n".join(path.read_text(errors="replace") for path in sources).split("\n\n")
    return np.array([len(text.split()) for text in texts if text.strip()])


def first_fit(lengths: list[int], capacity: int) -> int:
    """First-fit decreasing as it is written by hand: a list of the spaces left, searched from its beginning."""
    spaces: list[int] = []
    for length in sorted(lengths, reverse=True):
        for at, space in enumerate(spaces):
            if space >= length:
                spaces[at] -= length
                break
        else:
            spaces.append(capacity - length)
    return len(spaces)


def seconds(work: Callable[[], Any], times: int = 3) -> float:
    """Of this process, the best."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def of_law(lengths: np.ndarray, capacity: int) -> dict[str, Any]:
    bins, bound = pack(lengths, capacity), lower_bound(lengths, capacity)
    advice = simulate(Counter(lengths.tolist()), batch_size=BATCH, capacity=capacity)
    batches = BucketBatchSampler(lengths, BATCH).batches(0)
    few = lengths[:: max(1, len(lengths) // FEW)][:FEW]
    parts = bins.split(lengths, RANKS)
    loads = [np.array([part.sums(cost) for part in parts]) for cost in (lengths, lengths**2)]
    return {
        "sequences": len(lengths),
        "capacity": capacity,
        "pad_to_cap": advice.pad_to_cap,
        "pad_in_collate": advice.pad_in_collate,
        "bucketing": padded_efficiency(lengths, batches),
        "order_distance": order_distance(lengths, batches)._asdict(),
        "packing": efficiency(lengths, bins, capacity),
        "bins": len(bins),
        "bound": bound,
        "nothing_to_gain": advice.nothing_to_gain,
        "windows": {str(window): windowed(lengths, capacity, window) for window in WINDOWS},
        "ranks_max_over_mean": {
            name: float((load.max(0) / load.mean(0)).mean())
            for name, load in zip(("tokens", "squares"), loads, strict=True)
        },
        "pack_seconds": seconds(lambda: pack(lengths, capacity)),
        "pack_seconds_few": seconds(lambda: pack(few, capacity)),
        "first_fit_seconds_few": seconds(lambda: first_fit(few.tolist(), capacity), 1),
        "simulate_seconds": seconds(lambda: simulate(Counter(lengths.tolist()), batch_size=BATCH, capacity=capacity)),
    }


def windowed(lengths: np.ndarray, capacity: int, window: int) -> float:
    packs = sum(1 for _ in PackingDataset([range(n) for n in lengths.tolist()], capacity, window=window))
    return float(lengths.sum() / (packs * capacity))


def ten_million() -> dict[str, float]:
    """First of all, for the peak of a process never falls."""
    lengths = np.clip(np.random.RandomState(0).lognormal(5.2, 0.95, 10_000_000), 1, 2048).astype(np.int32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = seconds(lambda: pack(lengths, 2048), 1)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tenth = seconds(lambda: pack(lengths[:1_000_000], 2048), 1)
    return {"seconds": taken, "seconds_of_a_tenth": tenth, "peak_grew_bytes": 1024 * (after - before)}


def peers(python: str, cases: dict[str, tuple[np.ndarray, int]]) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({name: (lengths.tolist(), capacity) for name, (lengths, capacity) in cases.items()}, file)
        file.flush()
        done = subprocess.run([python, "-c", PEERS, file.name], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(rows: dict[str, dict[str, Any]], beside: dict[str, Any], many: dict[str, float]) -> str:
    head = ["law (capacity)", "pad to cap", "pad in collate", "group_by_length", "bucketing", "packing", "TRL bfd",
            "bins over bound", *(f"window {window}" for window in WINDOWS), "ranks' tokens, squares",
            "time, first-fit = 1", "time, TRL = 1"]  # fmt: skip
    lines = ["# Efficiency: real tokens over tokens computed on", ""]
    lines += ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for name, row in rows.items():
        other = beside.get(name, {})
        tokens = row["packing"] * row["bins"]
        cells = [f"{name} ({row['capacity']})"]
        cells += [f"{row[key]:.3f}" for key in ("pad_to_cap", "pad_in_collate")]
        cells += [
            f"{other['group_by_length']:.3f}" if other else "",
            f"{row['bucketing']:.3f}",
            f"{row['packing']:.4f}",
        ]
        cells += [f"{tokens / other['trl_bins']:.4f}" if other else "", f"{row['bins'] / row['bound']:.4f}"]
        cells += [f"{share:.4f}" for share in row["windows"].values()]
        cells += [", ".join(f"{share:.4f}" for share in row["ranks_max_over_mean"].values())]
        cells += [f"1/{row['first_fit_seconds_few'] / row['pack_seconds_few']:.0f}"]
        cells += [f"1/{other['trl_seconds'] / row['pack_seconds']:.0f}" if other else ""]
        lines.append("| " + " | ".join(cells) + " |")
    slowest = max(row["pack_seconds"] for row in rows.values())
    growth = many["seconds"] / many["seconds_of_a_tenth"]
    lines += [
        "",
        f"Batches of {BATCH}, mega-batches of 50; bins of {RANKS} ranks: the step's largest over its mean. First-fit",
        f"decreasing over a plain list of {FEW:,} sequences; TRL on all of them. The slowest law took {slowest:.3f} s,",
        f"ten million sequences {many['seconds']:.2f} s ({growth:.0f} times a tenth of them) and",
        f"{many['peak_grew_bytes'] / 2**20:.0f} MiB beyond their lengths.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON")
    given = parser.parse_args()
    many = ten_million()
    cases = laws()
    rows = {name: of_law(*case) for name, case in cases.items()}
    beside = peers(given.peers, cases) if given.peers else {}
    told = stamp()
    path = RESULTS / f"packing-{told['date']}"
    document = {"stamp": told, "laws": rows, "peers": beside, "ten_million": many}
    path.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    path.with_suffix(".md").write_text(table(rows, beside, many))
    print(table(rows, beside, many))


if __name__ == "__main__":
    main()
