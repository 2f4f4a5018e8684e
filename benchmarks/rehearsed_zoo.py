"""Are promises kept on programs that nobody here wrote: every remedy that can be played, beside the program with it.

    python -m benchmarks.rehearsed_zoo [--only NAME ...] [--without REMEDY ...] [--threads 0] [--seconds 8]
                                       [--also REMEDY ...] [--again] [--out DIR]

Of each training of the zoo: one run without rehearsal; every remedy that has a scene played on its ops; then arms of
the program, one as it is and one with each remedy, in turn (trial.field), a sweep there and back. malloc_thresholds
runs beside them, for the best single pick. `--also compile` measures what has no scene, on what is done.
`--again` plays the kept runs (.gobrrr/rehearsed-zoo) anew against the truth that was measured. Figures go to
benchmarks/results/rehearsed-zoo-DATE.json and .md after every program; what is there is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import rehearsed
from benchmarks.rehearsed_truth import START_S, Truth, truths
from benchmarks.stamp import stamp
from benchmarks.zoo.case import PROGRAMS, Case
from benchmarks.zoo.cases import CASES
from benchmarks.zoo.running import PATIENCE_S, TOLD, run
from benchmarks.zoo.tuning import PICKS
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.model.machine import Machine
from gobrrr.pipeline.ceilings import proven
from gobrrr.pipeline.judging import judged
from gobrrr.recording.run_folder.run import Recording, load_run
from gobrrr.rehearsal.outcome import outcome
from gobrrr.rehearsal.perform import perform
from gobrrr.rehearsal.scenes import MAKERS, scene
from gobrrr.rehearsal.script import Script
from gobrrr.remedies import registry
from gobrrr.rules.verdict.report import Report
from gobrrr.trial.race.referee import Program

KEPT = Path(".gobrrr") / "rehearsed-zoo"
RESULTS = Path(__file__).parent / "results"
ORDER = (
    "hf_trainer_encoder", "hf_trainer_decoder", "accelerate_nlp", "peft_lora", "x_transformers_lm", "diffusers_unet",
    "metric_learning", "dcgan", "sentence_transformers_train", "trl_sft", "monai_segmentation", "pyg_gcn",
    "gpytorch_svgp", "gpytorch_exact", "skorch_rows", "lightning_metrics", "pyro_vae", "tabnet_table",
)  # fmt: skip
"""The quick ones that say most come first; the others as the zoo has them."""
COMPILE_S = 70.0
"""For compiled code until it is warm; an arm that is late is given up at 85 % of it."""
SAME = "flush_denormal"
"""An arm to which nothing is done that counts: how far two processes of one program are apart."""
UNKNOWN = 0.5
"""Of a step, from which width on an interval that holds nothing says nothing."""
Row = dict[str, Any]


def main() -> int:
    """Play and measure what is left; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[case.name for case in cases()], metavar="NAME")
    parser.add_argument("--without", nargs="+", choices=tuple(MAKERS), default=[], metavar="REMEDY")
    parser.add_argument("--seconds", type=float, default=8.0, help="of sweeps for each remedy")
    parser.add_argument("--threads", type=int, default=0, help="of each program's ops; 0: as it has them")
    parser.add_argument("--also", nargs="+", default=[], metavar="REMEDY", help="alone, on what is done")
    parser.add_argument("--again", action="store_true", help="play kept runs anew, measure nothing")
    parser.add_argument("--out", default=str(RESULTS), metavar="DIR")
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # arms that stand still must not spin on the others' cores
    if args.threads:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
    where = stamp()
    file = Path(args.out) / f"rehearsed-zoo-{where['date']}.json"
    found: Row = {"schema": "gobrrr.rehearsed-zoo/1", **where, "threads": args.threads or "their own", "bars": {},
                  "programs": {}}  # fmt: skip
    if file.exists():
        found = json.loads(file.read_text(encoding="utf-8"))
    for case in cases():
        if (args.only and case.name not in args.only) or case.missing():
            continue
        try:
            news = _news(case, found["programs"].get(case.name), args)
        except (OSError, RuntimeError, ValueError) as error:
            news = {"failed": str(error)[-TOLD:], "pairs": [], "picks": {}}
        if news is not None:
            found["programs"][case.name] = news
            _keep(found, file)
            print("\n".join([*map(rehearsed.row, news["pairs"]), _picked(case.name, news)]), flush=True)
    print("\n".join(f"{bar['met']!s:>5}  {text}: {bar['value']}" for text, bar in found["bars"].items()))
    return 0 if all(bar["met"] for bar in found["bars"].values()) else 1


def cases() -> list[Case]:
    """Trainings of one process, in the order in which they are measured."""
    fit = [case for case in CASES if case.kind == "training" and not case.command]
    return sorted(fit, key=lambda case: ORDER.index(case.name) if case.name in ORDER else len(ORDER))


def _news(case: Case, before: Row | None, args: argparse.Namespace) -> Row | None:
    """What is to be kept of a program now; None where nothing is to be done."""
    if args.again:
        return _again(case, before) if before and before["pairs"] else None
    if args.also:
        names = [name for name in args.also if before and name not in before["picks"]]
        return _alone(case, before, names, args.seconds) if before and not before.get("failed") and names else None
    return measured(case, args.seconds, args.without) if before is None else None


def measured(case: Case, seconds: float, without: Sequence[str] = ()) -> Row:
    """One program from its run to the truth of each remedy."""
    folder = KEPT / case.name
    shutil.rmtree(folder, ignore_errors=True)
    _copied(case, folder / "run")
    command = [sys.executable, "-m", "gobrrr", "run", "-o", "recording", "--no-rehearsal", case.script.name]
    ended = run(command, folder / "run", PATIENCE_S)
    if ended.code:
        raise RuntimeError(f"its run left with {ended.code}: {ended.err}")
    recording, ledger, machine, report = _judged(folder)
    promises = dict(_promises(case, recording, ledger, machine, without))
    picks = [name for name in PICKS if name != "compile" and not _pointless(name, report)]
    names = [*promises, *(name for name in picks if name not in promises), SAME]
    brought = truths(_program(case, folder, ledger, report), names, seconds, folder / "arms")
    pairs = [_pair(case, name, promised, brought[name], ledger, report) for name, promised in promises.items()]
    return {"step_ns": ledger.wall, "pairs": [pair for pair in pairs if pair],
            "not_applied": {name: brought[name].why for name in names if brought[name].why},
            "picks": {name: brought[name].figures() for name in picks}, "same": brought[SAME].figures(),
            "sweeps": {name: [round(log, 5) for log in brought[name].logs] for name in names}}  # fmt: skip


def _again(case: Case, before: Row) -> Row:
    recording, ledger, machine, report = _judged(KEPT / case.name)
    without = [name for name in MAKERS if name not in before["sweeps"]]
    promises = dict(_promises(case, recording, ledger, machine, without))
    brought = {name: Truth(tuple(logs)) for name, logs in before["sweeps"].items()}
    pairs = [_pair(case, name, promised, brought[name], ledger, report)
             for name, promised in promises.items() if name in brought]  # fmt: skip
    return {**before, "step_ns": ledger.wall, "pairs": [pair for pair in pairs if pair]}


def _alone(case: Case, before: Row, names: Sequence[str], seconds: float) -> Row:
    folder = KEPT / case.name
    _, ledger, _, report = _judged(folder)
    patience = COMPILE_S if "compile" in names else START_S
    found = truths(_program(case, folder, ledger, report), names, seconds, folder / "arms", patience)
    figures = {name: each.figures() for name, each in found.items()}
    logs = {name: [round(log, 5) for log in each.logs] for name, each in found.items()}
    return {**before, "picks": {**before["picks"], **figures}, "sweeps": {**before["sweeps"], **logs}}


def _judged(folder: Path) -> tuple[Recording, Ledger, Machine, Report]:
    recording = load_run(folder / "run" / "recording")[0]
    machine = proven(Profiled(recording))
    ledger, report = judged(Profiled(recording), machine)
    return recording, ledger, machine, report


def _promises(
    case: Case, recording: Recording, ledger: Ledger, machine: Machine, without: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """(remedy, what its rehearsal says and why not) of all that have a scene, played in one process as in a run. The
    number of threads is left alone: other than it is, it was set here."""
    names = [name for name in MAKERS if name != "intraop_threads" and name not in without]
    scenes = [made for name in names if (made := scene(name, ledger, machine, rehearsed.SECONDS)) is not None]
    precision = ledger.facts.settings.matmul_precision or "highest"
    seconds = rehearsed.STARTED + rehearsed.SECONDS * len(scenes)
    script = Script(recording.start.torch, "cpu", ledger.threads, precision, tuple(scenes), seconds)
    done = perform(script, sys.executable)
    for made in scenes:
        found = outcome(made, done[made.remedy], ledger.wall)
        kept = {"wall": ledger.wall, "scene": made, "played": done[made.remedy], "found": found}
        (KEPT / case.name / f"{made.remedy}.json").write_bytes(msgspec.json.encode(kept))
        yield made.remedy, (found, done[made.remedy].why)


def _pair(case: Case, name: str, told: Any, truth: Truth, ledger: Ledger, report: Report) -> Row | None:
    """As benchmarks.rehearsed has them; None where the remedy could not be applied, which no rehearsal can know, and
    where the truth is not known (steps that validate now and then)."""
    if truth.why or not truth.logs:
        return None
    found, why = told
    estimate = next((f.saving for f in report.findings if name in f.remedies), None)
    median, low, high = truth.shares()
    if low < 0 < high and high - low > UNKNOWN:
        return None
    return {
        "program": case.name, "remedy": name, "step_ns": ledger.wall, "why_not": why,
        "promised": rehearsed.as_told(found, ledger.wall),
        "change_ns": found.change_ns if found else None, "today_ns": found.today_ns if found else None,
        "realised_ns": median * ledger.wall, "realised_interval_ns": [low * ledger.wall, high * ledger.wall],
        "estimated": [estimate.low_ns, estimate.expected_ns, estimate.ceiling_ns] if estimate else None,
        "num_pairs": len(truth.logs),
    }  # fmt: skip


def _program(case: Case, folder: Path, ledger: Ledger, report: Report) -> Program:
    """To be started as arms, in a copy of its folder."""
    from gobrrr.pipeline.tuning import options_of

    source = (folder / "source").resolve()
    shutil.rmtree(source, ignore_errors=True)
    _copied(case, source)
    return Program((sys.executable, case.script.name), source, ledger.wall, report.step.loop, threads=report.threads,
                   bytes=report.memory.peak or 0, options=options_of(registry.names(), report))  # fmt: skip


def _copied(case: Case, place: Path) -> None:
    place.mkdir(parents=True)
    for file in (case.script, PROGRAMS / "words.py"):
        shutil.copy2(file, place)


def _pointless(name: str, report: Report) -> bool:
    return registry.remedy(name).is_pointless(report)


def _keep(found: Row, file: Path) -> None:
    pairs = [pair for each in found["programs"].values() for pair in each["pairs"]]
    found["bars"] = {f"at least 40 pairs: {len(pairs)}": {"value": len(pairs), "met": len(pairs) >= 40},
                     **rehearsed.bars(pairs)}  # fmt: skip
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    text = rehearsed.table({**found, "pairs": pairs})
    picks = "\n".join(_picked(name, each) for name, each in found["programs"].items())
    file.with_suffix(".md").write_text(f"{text}\nSingle picks, times as fast (95 %):\n\n{picks}\n", encoding="utf-8")


def _picked(name: str, row: Row) -> str:
    if row.get("failed"):
        return f"- {name}: failed: {row['failed'][-160:]}"
    same = {"the same": row["same"]} if "same" in row else {}
    return f"- {name}: {'; '.join(_one(pick, each) for pick, each in {**row['picks'], **same}.items())}"


def _one(pick: str, found: Row) -> str:
    if not found.get("speedup"):
        return f"{pick} no: {found['why'][:80]}"
    median, low, high = found["speedup"]
    return f"{pick} {median:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    sys.exit(main())
