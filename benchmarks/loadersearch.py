"""Does the search for a loader's settings (trial/race/loader_settings.py) end at the best of all settings?

    python -m benchmarks.loadersearch [--only NAME ...] [--suffix WORD] [--replay FILE]

Each pipeline runs in a process of its own through a grid of settings: 0 to 4 workers, 2 and 4 batches ahead of each (8
too where some samples are slow), rows at once where they lie in memory; three rounds, each in an order drawn anew. Then
the search is played on what one round measured, from a user's 0 and from 4 workers, and what it ends at is judged by
the other two rounds, which it has not seen: the best of the grid by them over what it chose. With three rounds
that is six searches of each pipeline. Writes benchmarks/results/loadersearch-DATE.json and .md.

--replay: the same on an earlier result, where nothing is measured anew: ours, or what benchmarks.loadermodel measured
of 0, 1, 2 and 4 workers on a quiet machine; a search that asks for another setting is told that it failed, which costs
it the trial.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, median_low
from typing import Any

from benchmarks.loadermodel import PATIENT, busy_seconds, looped, own_seconds, pipeline_of
from benchmarks.stamp import stamp
from gobrrr.ledger.loading import loader_model
from gobrrr.trial.race.loader_settings import LoaderSearch, Setting, Tried

RESULTS = Path(__file__).parent / "results"
PIPELINES = (
    "blocks 32 | sleeps 10", "blocks 64 | ops on one thread 25", "computes 32 | sleeps 40", "16 of each | Python 12",
    "computes 12 | ops on one thread 25", "blocks 8, computes 4 | Python 12", "words by re", "TensorDataset",
    "slow server", "padded in Python", "augmented by NumPy", "one slow sample in 64",
)  # fmt: skip
ROUNDS, MOST_WORKERS = 3, 4
USERS = (0, 4)
"""Workers that the user has set."""
OFF = 0.032
"""Half the interval of a log ratio of two processes of one program (trial/statistics/anytime.py)."""
ENOUGH = 0.95


def grid(name: str) -> list[Setting]:
    """All settings that are measured of a pipeline; those that its search may ask for are among them."""
    ahead = (2, 4, 8) if name in UNEVEN else (2, 4)
    found = [Setting(0), *(Setting(w, p) for w in range(1, MOST_WORKERS + 1) for p in ahead)]
    return [*found, *(Setting(w, batched=True) for w in range(MOST_WORKERS + 1))] if name in IN_MEMORY else found


UNEVEN, IN_MEMORY = ("one slow sample in 64",), ("TensorDataset",)


def pipeline(name: str) -> Any:
    """In this process."""
    from benchmarks.loadermodel_pipelines import Items, Made, made

    if name not in UNEVEN:
        return made(name)
    import torch

    def item(index: int) -> torch.Tensor:
        time.sleep(0.060 if index % 64 == 63 else 0.0005)
        return torch.zeros(16)

    return Made(Items(item), lambda batch: time.sleep(0.012), {"batch_size": 8}, torch.get_num_threads())


def with_setting(made: Any, setting: Setting) -> Any:
    """The pipeline with a loader of that setting but for its workers."""
    given = dict(made.loader)
    if setting.workers:
        given["prefetch_factor"] = setting.prefetch
    if not setting.batched:
        return made._replace(loader=given)
    from torch.utils.data import BatchSampler, SequentialSampler

    sampler = BatchSampler(SequentialSampler(made.dataset), given["batch_size"], drop_last=False)
    return made._replace(loader={**given, "sampler": sampler, "batch_size": None, "collate_fn": lambda batch: batch})


def measured(name: str) -> dict[str, Any]:
    """Of one pipeline, in this process: ns per step of each setting in each round, and the advice of the model."""
    import torch

    from gobrrr.machine.measure.gauges import CoresGauge

    torch.manual_seed(0)
    made = pipeline(name)
    before, own, began = busy_seconds(), own_seconds(), time.perf_counter()
    rounds: list[dict[str, float]] = []
    with CoresGauge(os.cpu_count() or 1, time.perf_counter_ns) as gauge:
        cores = mean(gauge.sample(time.perf_counter_ns) for _ in range(4))
        plain = looped(made, 0, 0.0)
    advised = loader_model.best(pipeline_of({**plain, "threads": made.threads}), cores, MOST_WORKERS)
    for number in range(ROUNDS):
        order = random.Random(number).sample(grid(name), len(grid(name)))
        rounds.append({
            json.dumps(each): looped(with_setting(made, each), each.workers, plain["step"])["step"] for each in order
        })  # fmt: skip
    others = (busy_seconds() - before - (own_seconds() - own)) / (time.perf_counter() - began)
    return {"name": name, "advised": [advised] * ROUNDS, "cores": cores, "others": max(0.0, others), "rounds": rounds}


def replayed(file: Path) -> list[dict[str, Any]]:
    """The pipelines of an earlier result, ours or of benchmarks.loadermodel, in the shape of `measured`."""
    cases = []
    for case in json.loads(file.read_text())["cases"]:
        if "rounds" in case:  # one of our own
            cases.append(case)
            continue
        repeats = sorted({row["repeat"] for row in case["rows"]})
        by = {(row["repeat"], row["workers"]): row for row in case["rows"]}
        plain = [by[each, 0] for each in repeats]
        rounds = [{json.dumps(Setting(w)): row["step"] for (n, w), row in by.items() if n == each} for each in repeats]
        advised = [loader_model.best(pipeline_of(row), row["cores"], MOST_WORKERS) for row in plain]
        cases.append({"name": case["name"], "advised": advised, "cores": case["cores"], "others": case["others"],
                      "rounds": rounds})  # fmt: skip
    return cases


def searched(name: str, case: dict[str, Any], seen: int, user: int) -> dict[str, Any]:
    """One search on what a round measured; its choice and others' as shares of the best of the grid, by the rounds that
    nobody has seen: what the search kept, an exhaustive look at the same round, the model alone, the user."""
    rounds = [{Setting(*json.loads(key)): ns for key, ns in found.items()} for found in case["rounds"]]
    steps, now, advised = rounds[seen], Setting(user), Setting(case["advised"][seen])
    search = LoaderSearch(advised, now, MOST_WORKERS, math.inf, can_batch=name in IN_MEMORY)
    while (setting := search.next()) is not None:
        if setting in steps:
            gain = math.log(steps[now] / steps[setting])
            search.feed(setting, Tried(gain, gain - OFF))
        else:
            search.fail(setting)
    judged = {each: median(found[each] for n, found in enumerate(rounds) if n != seen) for each in steps}
    least, kept = min(judged.values()), search.best() or now
    whole, nearest = min(steps, key=lambda each: steps[each]), min(each for each in steps if each >= advised)
    return {
        "user": user, "seen": seen, "trials": len(search.tried) + len(search.failed), "kept": str(kept),
        "search": least / judged[kept], "exhaustive": least / judged[whole], "model": least / judged[nearest],
        "as_set": least / judged[now],
    }  # fmt: skip


def spread(case: dict[str, Any]) -> float:
    """By how much the same setting's step differs from one round to the next, the median over the grid."""
    rounds = case["rounds"]
    return median(abs(a[key] / b[key] - 1) for a, b in pairwise(rounds) for key in a)


KINDS = {"search": "the search", "exhaustive": "all settings", "model": "the model alone", "as_set": "the user's own"}
CALM = 0.05
"""Rounds of a pipeline that differ by less measured the pipeline; others their neighbours as well."""


def summed(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = [each for case in cases for each in case["searches"]]
    shares = {kind: [each[kind] for each in found] for kind in KINDS}
    return {
        "pipelines": len(cases), "searches": len(found), "spread": median(case["spread"] for case in cases),
        "trials_mean": mean(each["trials"] for each in found), "trials_most": max(each["trials"] for each in found),
        "like_exhaustive": sum(each["search"] >= ENOUGH * each["exhaustive"] for each in found),
        "slower": sum(each["search"] < (1 - OFF) * each["as_set"] for each in found),
        "shares": {kind: {"mean": mean(them), "least": min(them), "enough": sum(each >= ENOUGH for each in them)}
                   for kind, them in shares.items()},
    }  # fmt: skip


def table(cases: Sequence[dict[str, Any]], where: dict[str, Any]) -> str:
    chip = f"{where['cpu']}, {where['cores']} cores, {where['date']}, torch {where['torch']}"
    lines = ["# The search for a loader's settings against all of them", ""]
    lines += [f"{chip}; load {where['load']} at the start. Of the best of the grid, by rounds not seen:", ""]
    calm = [case for case in cases if case["spread"] < CALM]
    for title, some in (("all pipelines", cases), (f"those whose rounds differ by less than {CALM:.0%}", calm)):
        lines += _summary(title, summed(some)) if some else []
    head = (
        "pipeline",
        "cores, others",
        "rounds differ by",
        "settings",
        "model advises",
        "user: kept (trials, of best)",
    )
    lines += [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for case in cases:
        said = "; ".join(f"{e['user']}: {e['kept']} ({e['trials']}, {e['search']:.0%})" for e in case["searches"])
        name = case["name"].replace(" | ", " / ")
        lines.append(f"| {name} | {case['cores']:.2f}, {case['others']:.2f} | {case['spread']:.1%} | "
                     f"{len(case['rounds'][0])} | {median_low(case['advised'])} | {said} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def _summary(title: str, found: dict[str, Any]) -> list[str]:
    num = found["searches"]
    lines = [f"| {title}: {found['pipelines']}, {num} searches | mean | least | {ENOUGH:.0%} or more |"]
    lines.append("| --- | --- | --- | --- |")
    lines += [f"| {KINDS[kind]} | {of['mean']:.1%} | {of['least']:.0%} | {of['enough']} of {num} |"
              for kind, of in found["shares"].items()]  # fmt: skip
    return [
        *lines, "", f"Trials: {found['trials_mean']:.1f} on average, {found['trials_most']} at most. At {ENOUGH:.0%} "
        f"of what all settings give, or more: {found['like_exhaustive']} of {num}. Slower than the user's own by more "
        f"than {OFF:.1%}: {found['slower']}. A setting differs by {found['spread']:.1%} from round to round.", "",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--suffix", default="")
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--pipeline", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.pipeline:
        print(json.dumps(measured(args.pipeline)))
        return
    where, cases = stamp(), []
    file = RESULTS / f"loadersearch-{where['date']}{args.suffix}.json"
    wanted = [name for name in PIPELINES if not args.only or any(word in name for word in args.only)]
    if args.replay:
        where = {key: value for key, value in json.loads(args.replay.read_text()).items() if key in where}
    for case in replayed(args.replay) if args.replay else map(fresh, wanted):
        name = case["name"]
        found = [searched(name, case, seen, user) for user in USERS for seen in range(len(case["rounds"]))]
        cases.append({**case, "spread": spread(case), "searches": found})
        said = [(each["kept"], each["trials"], round(each["search"], 2)) for each in found]
        print(f"{name:36} advised {case['advised']} {said}", flush=True)
        file.write_text(json.dumps({**where, "summary": summed(cases), "cases": cases}, indent=1) + "\n")
        file.with_suffix(".md").write_text(table(cases, where))


def fresh(name: str) -> dict[str, Any]:
    """Measured in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.loadersearch", "--pipeline", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | PATIENT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
