"""How well does the loader model (ledger/loading/loader_model.py) predict the step with 1, 2 and 4 workers?

    python -m benchmarks.loadermodel [--only NAME ...] [--repeats N] [--suffix WORD]

Each repeat goes through the pipelines in an order drawn anew, each in a process of its own, first without workers and
then with 1, 2 and 4 of them in an order drawn anew, with the effective cores measured before and after each (they
change while others use the host), and again where processes of others had the cores meanwhile. C, I, P and the cores
that C keeps busy are taken from the repeat's own loop without workers (once more from that with one), the other counts
are predicted from them; what counts is the median of the repeats. What today's file holds is not measured again.
Writes benchmarks/results/loadermodel-DATE.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from benchmarks.stamp import stamp
from gobrrr.ledger.loading.loader_model import HANDOVER_NS, Pipeline, best, step

WORKERS = (0, 1, 2, 4)
SECONDS = 0.6
"""Of one measurement, about."""
CALM, TRIES, PAUSE = 0.25, 2, 0.5
"""Cores that others may have meanwhile; attempts to find it so, and seconds between them: else the calmest counts."""
FEWEST, MOST = 16, 150
"""Steps of one."""
PATIENT = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that spin while they wait make an op fifty times as long where a neighbour has one of the cores (decision
0014): a shared machine then measures its neighbours. They sleep here, as with the remedy short_wait."""
RESULTS = Path(__file__).parent / "results"
MS = 1e6


class Clocked:
    """A data set or collate function that adds up its wall and CPU time (ns) where processes can share it; ready and
    without a core it is neither."""

    def __init__(self, thing: Any, sums: Any) -> None:
        self._thing, self._sums = thing, sums

    def __len__(self) -> int:
        return len(self._thing)

    def __getitem__(self, index: int) -> Any:
        return self(index, self._thing.__getitem__)

    def __call__(self, given: Any, work: Any = None) -> Any:
        wall, cpu, queued = time.perf_counter_ns(), time.thread_time_ns(), queued_ns()
        found = (work or self._thing)(given)
        import torch

        info = torch.utils.data.get_worker_info()
        row = self._sums[0 if info is None else info.id]
        row[0] += time.perf_counter_ns() - wall - (queued_ns() - queued)
        row[1] += time.thread_time_ns() - cpu
        return found


def queued_ns() -> int:
    """That this thread was ready to run and had no core."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


def measured(name: str, repeat: int) -> list[dict[str, Any]]:
    """Of one pipeline, in this process: a row for each number of workers, ns per step."""
    import torch

    from benchmarks.loadermodel_pipelines import made
    from gobrrr.machine.measure.gauges import CoresGauge

    torch.manual_seed(0)
    pipeline = made(name)
    rows: list[dict[str, Any]] = []
    with CoresGauge(os.cpu_count() or 1, time.perf_counter_ns) as gauge:
        gauge.sample(time.perf_counter_ns)
        for workers in [0, *random.Random(repeat).sample(WORKERS[1:], len(WORKERS) - 1)]:
            found = calmest(pipeline, workers, rows[0]["step"] if rows else 0.0, gauge)
            rows.append({"workers": workers, "repeat": repeat, "threads": pipeline.threads, **found})
    return rows


def calmest(made: Any, workers: int, guess: float, gauge: Any) -> dict[str, float]:
    """A measurement beside which others had hardly a core; of several the one that they had least of. With the
    effective cores before and after it."""
    tries: list[dict[str, float]] = []
    while len(tries) < TRIES and (not tries or tries[-1]["others"] > CALM):
        time.sleep(PAUSE if tries else 0)
        cores = [gauge.sample(time.perf_counter_ns) for _ in range(2)]
        before, own, began = busy_seconds(), own_seconds(), time.perf_counter()
        found = looped(made, workers, guess)
        spent = busy_seconds() - before - (own_seconds() - own)
        others = max(0.0, spent / (time.perf_counter() - began))
        cores += [gauge.sample(time.perf_counter_ns) for _ in range(2)]
        tries.append({**found, "others": others, "cores": mean(cores)})
    return min(tries, key=lambda each: each["others"])


def busy_seconds() -> float:
    """Of all cores since boot."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """CPU time of this process and of its workers, which have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def looped(made: Any, workers: int, guess: float) -> dict[str, float]:
    """One measurement: means over its steps, after as many as fill the queues."""
    import torch
    from torch.utils.data import DataLoader, default_collate

    sums = torch.zeros(max(1, workers), 2, dtype=torch.int64).share_memory_()
    given = dict(made.loader)
    collate = Clocked(given.pop("collate_fn", default_collate), sums)
    loader = DataLoader(Clocked(made.dataset, sums), num_workers=workers, collate_fn=collate, **given)
    skip = 2 + 3 * workers
    num = MOST if not guess else max(FEWEST, 4 * workers, min(MOST, round(SECONDS * 1e9 / guess)))
    batches = iter(loader)
    wait = cpu = 0
    until = time.perf_counter() + (2 * SECONDS if not guess else 60)
    done = 0
    for number in range(skip + num):
        if number == skip:
            began, before = time.perf_counter_ns(), sums.clone()
            wait = cpu = done = 0
        asked = time.perf_counter_ns()
        batch = next(batches)
        got, spent = time.perf_counter_ns(), time.process_time_ns()
        made.compute(batch)
        cpu += time.process_time_ns() - spent
        wait += got - asked
        done += 1
        if number >= skip + FEWEST and time.perf_counter() > until:
            break
    ended = time.perf_counter_ns()
    loading, computed = (sums - before).sum(0).tolist()
    del batches, batch
    whole = (ended - began) / done
    return {
        "step": whole,
        "wait": wait / done,
        "busy_ns": cpu / done,
        "loading": loading / done,
        "cpu": computed / done,
    }


def pipeline_of(row: dict[str, Any]) -> Pipeline:
    """What one measurement says of the loop and its loader."""
    compute = row["step"] - row["wait"]
    blocked = max(0.0, row["loading"] - row["cpu"])
    return Pipeline(compute, blocked, row["cpu"], busy=row["busy_ns"] / compute, threads=row["threads"])


def judged(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A pipeline's cells, ms: each repeat is predicted from its own loop without workers and the cores of that moment,
    and what counts is the median of the repeats, of the calm ones where there are some."""
    by = {(row["workers"], row["repeat"]): row for row in rows}
    repeats = sorted({row["repeat"] for row in rows})
    steps = {w: median(by[w, r]["step"] for r in repeats) for w in WORKERS}
    cells = []
    for workers in WORKERS[1:]:
        calm = [r for r in repeats if max(by[w, r]["others"] for w in (0, workers)) <= CALM]
        those = calm or repeats
        said = {n: [step(pipeline_of(by[n, r]), workers, by[workers, r]["cores"]) for r in those] for n in (0, 1)}
        got = [by[workers, r]["step"] for r in those]
        off = {n: median(a / b - 1 for a, b in zip(said[n], got, strict=True)) for n in said}
        cells.append({
            "workers": workers, "measured": median(got) / MS, "predicted": median(said[0]) / MS, "calm": bool(calm),
            "from_one": median(said[1]) / MS, "error": off[0], "error_from_one": off[1],
        })  # fmt: skip
    plain = {key: median(by[0, r][key] for r in repeats) for key in by[0, repeats[0]]}
    cores, found = median(row["cores"] for row in rows), pipeline_of(plain)
    advised = best(found, cores, max(WORKERS))
    advised = min(w for w in WORKERS if w >= advised)
    return {
        "name": name, "cores": cores, "c": found.compute_ns / MS, "i": found.blocked_ns / MS, "p": found.cpu_ns / MS,
        "busy": found.busy, "threads": found.threads, "without": steps[0] / MS, "cells": cells, "advised": advised,
        "of_best": min(steps.values()) / steps[advised], "of_plain": steps[0] / steps[advised],
        "others": median(row["others"] for row in rows), "rows": list(rows),
    }  # fmt: skip


def errors(cells: Sequence[dict[str, Any]], key: str = "error") -> dict[str, float]:
    """Of the predicted steps, relative, without sign."""
    found = sorted(abs(cell[key]) for cell in cells)
    tenths = quantiles(found, n=10, method="inclusive") if len(found) > 1 else found * 9
    return {"cells": len(found), "median": median(found), "p90": tenths[8], "largest": found[-1]}


def table(cases: Sequence[dict[str, Any]], summary: dict[str, Any], where: dict[str, Any]) -> str:
    lines = ["# The step with w workers, predicted from the loop without any", ""]
    chip = f"{where['cpu']}, {where['cores']} cores, {where['date']}, torch {where['torch']}"
    load = f"load {where['load']} at the start, {summary['load_at_the_end']} at the end"
    lines += [f"{chip}; {load}; a hand-over of {HANDOVER_NS / MS:.1f} ms.", ""]
    lines += ["| errors | cells | median | 90th percentile | largest |", "| --- | --- | --- | --- | --- |"]
    for kind, found in summary["errors"].items():
        figures = f"{found['median']:.1%} | {found['p90']:.1%} | {found['largest']:.0%}"
        lines.append(f"| {kind} | {found['cells']} | {figures} |")
    share = f"{summary['of_best_mean']:.1%} on average, {summary['of_best_least']:.1%} at least"
    lines += ["", f"Of the best of 0, 1, 2 and 4 workers the advised number brings {share}."]
    lines += [f"No more than 2 % slower than without workers: {summary['never_slower']} of {len(cases)}.", ""]
    head = ("pipeline (ms)", "C, busy cores", "I", "P", "cores", "w=0", "1: predicted, measured", "2", "4", "advised")
    lines += [f"| {' | '.join(head)}, of best |", "|" + " --- |" * len(head)]
    for case in cases:
        marks = ["" if c["calm"] else "*" for c in case["cells"]]
        cells = [f"{c['predicted']:.1f}, {c['measured']:.1f} ({c['error']:+.0%}){mark}"
                 for c, mark in zip(case["cells"], marks, strict=True)]  # fmt: skip
        name = case["name"].replace(" | ", " / ")
        lines.append(f"| {name} | {case['c']:.1f}, {case['busy']:.2f} | {case['i']:.1f} | {case['p']:.1f} | "
                     f"{case['cores']:.2f} | {case['without']:.1f} | {' | '.join(cells)} | {case['advised']}, "
                     f"{case['of_best']:.0%} |")  # fmt: skip
    lines += ["", f"`*`: others had more than {CALM} cores meanwhile, and never less."]
    return "\n".join(lines) + "\n"


def summed(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    made, real = ([c for c in cases if (" | " in c["name"]) == is_made] for is_made in (True, False))
    kinds = {"synthetic": made, "real": real, "all": list(cases)}
    cells = {kind: [cell for case in some for cell in case["cells"]] for kind, some in kinds.items()}
    cells |= {f"{kind}, calm": [cell for cell in some if cell["calm"]] for kind, some in cells.items()}
    found = {kind: errors(some) for kind, some in cells.items() if some}
    found["all, from one worker (2 and 4)"] = errors([c for c in cells["all"] if c["workers"] > 1], "error_from_one")
    return {
        "errors": found, "of_best_mean": mean(c["of_best"] for c in cases),
        "of_best_least": min(c["of_best"] for c in cases),
        "never_slower": sum(c["of_plain"] >= 1 / 1.02 for c in cases), "load_at_the_end": round(os.getloadavg()[0], 2),
    }  # fmt: skip


def main() -> None:
    from benchmarks.loadermodel_pipelines import names

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--suffix", default="")
    parser.add_argument("--pipeline", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.pipeline:
        print(json.dumps(measured(args.pipeline, args.repeats)))
        return
    where, rows = stamp(), defaultdict(list)
    file = RESULTS / f"loadermodel-{where['date']}{args.suffix}.json"
    if file.is_file():
        rows.update({case["name"]: case["rows"] for case in json.loads(file.read_text())["cases"]})
    wanted = [name for name in names() if not args.only or any(word in name for word in args.only)]
    for repeat in range(args.repeats):
        for name in sorted(random.Random(repeat).sample(wanted, len(wanted)), key=lambda name: " | " in name):
            if any(row["repeat"] == repeat for row in rows[name]):
                continue
            command = [sys.executable, "-m", "benchmarks.loadermodel", "--pipeline", name, "--repeats", str(repeat)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | PATIENT)
            rows[name] += json.loads(done.stdout.splitlines()[-1])
            written([judged(each, rows[each]) for each in names() if rows[each]], where, file)
            print(shown(judged(name, rows[name])), flush=True)
    written([judged(each, rows[each]) for each in names() if rows[each]], where, file)


def shown(case: dict[str, Any]) -> str:
    cells = [f"{cell['predicted']:.1f}/{cell['measured']:.1f}" for cell in case["cells"]]
    parts = f"C {case['c']:5.1f} b {case['busy']:4.2f} I {case['i']:5.1f} P {case['p']:5.1f} e {case['cores']:.2f}"
    return f"{case['name']:42} {parts} w0 {case['without']:6.1f} others {case['others']:.2f}  {'  '.join(cells)}"


def written(cases: Sequence[dict[str, Any]], where: dict[str, Any], file: Path) -> None:
    """After each pipeline: what is there so far."""
    summary = summed(cases)
    file.write_text(json.dumps({**where, "summary": summary, "cases": cases}, indent=1) + "\n")
    file.with_suffix(".md").write_text(table(cases, summary, where))


if __name__ == "__main__":
    main()
