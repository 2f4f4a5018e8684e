"""The planted illnesses: does `gobrrr run` name them, place them, and promise no more than comes true?

    python -m benchmarks.planted [--only NAME ...] [--rounds 2] [--skip-peers] [--json FILE]

For every entry of tests/planted/catalogue.py the plain programs are timed in turn, then both go through `gobrrr run`,
then TraceML is asked about the sick one. The table and the bars go to stdout and, with all samples, to
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import planted_scoring as scoring  # noqa: E402
from benchmarks import quiet  # noqa: E402
from benchmarks.planted_peers import TraceML  # noqa: E402
from benchmarks.planted_table import bars, markdown  # noqa: E402
from benchmarks.planted_truth import PATIENCE, Truth, environment, measure, step_arguments  # noqa: E402
from tests.planted.catalogue import BY_NAME, CATALOGUE, Illness  # noqa: E402

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Run the bench; 0 where every bar is met, 1 where one is missed."""
    args = parse(sys.argv[1:])
    chosen = [BY_NAME[name] for name in args.only] if args.only else list(CATALOGUE)
    peer = None if args.skip_peers else TraceML.install()
    entries, truths = [], {}
    for illness in chosen:
        entry, truth = examine(illness, args, peer if isinstance(peer, TraceML) else None)
        entries.append(entry)
        truths[illness.name] = truth
        print(f"{illness.name:28s} {progress(entry)}", file=sys.stderr, flush=True)
    result = summarise(entries, notes(peer, chosen, args))
    RESULTS.mkdir(exist_ok=True)
    name = f"planted-{result['date']}" + ("-part" if args.only else "")
    target = Path(args.json) if args.json else RESULTS / f"{name}.json"
    target.write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
    return 0 if all(scoring.meets(bar, result["shares"][bar]) for bar in scoring.BARS) else 1


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=sorted(BY_NAME), help="these illnesses alone")
    parser.add_argument("--rounds", type=int, default=2, help="times that each plain program runs (default 2)")
    parser.add_argument("--steps", type=int, help="steps of every program in place of its own number")
    parser.add_argument(
        "--patience", type=float, default=60, metavar="S", help="wait so long for idle cores (default 60)"
    )
    parser.add_argument("--json", metavar="FILE", help="where the result goes")
    parser.add_argument("--skip-peers", action="store_true", help="do not ask TraceML")
    parser.add_argument("--skip-gobrrr", action="store_true", help="time the plain programs only")
    return parser.parse_args(words)


def examine(illness: Illness, args: argparse.Namespace, peer: TraceML | None) -> tuple[dict[str, Any], Truth | None]:
    """Everything about one illness, ready for JSON."""
    entry: dict[str, Any] = {
        "name": illness.name, "code": illness.code, "codes": illness.codes, "statistic": illness.statistic,
        "conditional": illness.conditional, "bytes_illness": illness.bytes_illness, "load": os.getloadavg()[0],
    }  # fmt: skip
    if absent := illness.absent():
        return {**entry, "error": f"skipped: {', '.join(absent)} not here"}, None
    try:
        truth = measure(illness, args.rounds, args.steps, args.patience)
        entry |= figures(truth)
        if not args.skip_gobrrr:
            quiet.wait(args.patience)
            entry |= judged(illness, truth, args.steps)
        if peer:
            entry["traceml"] = asdict(peer.ask(illness, args.steps))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return {**entry, "error": str(error)}, None
    return entry, truth


def figures(truth: Truth) -> dict[str, Any]:
    """What was measured without gobrrr."""
    return {
        "sick_ns": truth.step_ns("sick"), "healthy_ns": truth.step_ns("healthy"), "ratio": truth.ratio,
        "saving_ns": truth.saving_ns, "growth_bytes": truth.growth_bytes("sick") - truth.growth_bytes("healthy"),
        "is_ill": truth.is_ill, "calm": truth.calm, "twin_waits": truth.waits("healthy"),
        "runs": {"sick": [asdict(t) for t in truth.sick], "healthy": [asdict(t) for t in truth.healthy]},
    }  # fmt: skip


def judged(illness: Illness, truth: Truth, num_steps: int | None) -> dict[str, Any]:
    """Both programs through `gobrrr run`, and how its reports compare with the truth."""
    reports = {who: diagnose(illness.script(who), num_steps) for who in ("sick", "healthy")}
    growth = truth.growth_bytes("sick") - truth.growth_bytes("healthy") if illness.bytes_illness else None
    lines = illness.guilty_lines()
    here = scoring.saving_here(reports["sick"], truth.step_ns("sick"), truth.step_ns("healthy"), illness.statistic)
    sick = scoring.judge_sick(reports["sick"], illness.codes, lines, saving_ns=here, growth_bytes=growth)
    strict = scoring.judge_sick(reports["sick"], illness.codes, lines, saving_ns=truth.saving_ns, growth_bytes=growth)
    loud = [f["code"] for f in scoring.findings(reports["sick"]) if f["severity"] in scoring.LOUD]
    return {
        "sick": asdict(sick),
        "saving_here_ns": here,
        "inside_as_measured": strict.saving_inside,
        "false_sick": [] if truth.is_ill else [code for code in loud if code in illness.codes],
        "loud_healthy": list(scoring.judge_healthy(reports["healthy"])),
        "told": {who: _gist(report) for who, report in reports.items()},
    }


def diagnose(script: Path, num_steps: int | None) -> dict[str, Any] | None:
    """The report of `gobrrr run`; null where there is none."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "report.json"
        options = ["--json", str(out), "-o", str(Path(scratch) / "run")]
        command = [sys.executable, "-m", "gobrrr", "run", *options, str(script), *step_arguments(num_steps)]
        subprocess.run(command, capture_output=True, timeout=PATIENCE, env=environment(), cwd=ROOT)
        return json.loads(out.read_text()) if out.exists() else None


def summarise(entries: list[dict[str, Any]], remarks: list[str]) -> dict[str, Any]:
    """Shares against the bars, over the illnesses that are illnesses on this machine."""
    true_here = {code for e in entries if e["conditional"] and e.get("is_ill") for code in e["codes"]}
    asked = [e for e in entries if "sick" in e]
    for entry in asked:
        waits = scoring.WAITING if entry.get("twin_waits", 0.0) >= scoring.WAITS else frozenset()
        entry["false_healthy"] = [code for code in entry["loud_healthy"] if code not in true_here | waits]
    ill = [e for e in asked if e["is_ill"]]
    quiet_ones = [bool(e["false_healthy"]) for e in asked] + [bool(e["false_sick"]) for e in asked if not e["is_ill"]]
    shares = {bar: scoring.share(e["sick"][bar] for e in ill) for bar in ("named", "placed", "saving_inside")}
    return {
        "schema": "gobrrr.planted/1",
        "date": datetime.date.today().isoformat(),
        "machine": {"name": _processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)},
        "versions": {"Python": platform.python_version(), **{name: _version(name) for name in ("torch", "gobrrr")}},
        "shares": {**shares, "false_findings": scoring.share(quiet_ones)},
        "inside_as_measured": scoring.share(e["inside_as_measured"] for e in ill),
        "expected_error": scoring.expected_error(ill),
        "counts": {**dict.fromkeys(shares, len(ill)), "false_findings": len(quiet_ones)},
        "true_here": sorted(true_here),
        "entries": entries,
        "notes": remarks,
    }


def notes(peer: TraceML | str | None, chosen: list[Illness], args: argparse.Namespace) -> list[str]:
    """What a reader must know of the peer."""
    if not isinstance(peer, TraceML):
        return [peer] if peer else ["TraceML was not asked."]
    plain = peer.ask(chosen[0], args.steps, unmodified=True)
    return [
        f"TraceML {peer.version} takes step boundaries from the program. Of the unmodified {chosen[0].name} it says "
        f"{plain.kind}: {plain.sentence} For the table it was given the boundaries from outside (traceml_steps.py). "
        "It names no line and no saving, so its column has its verdict alone.",
    ]


def progress(entry: dict[str, Any]) -> str:
    """One line while the bench runs."""
    if "error" in entry:
        return str(entry["error"])[:100]
    sick = entry.get("sick") or {"named": "-", "top": "-", "placed": "-", "saving_inside": "-"}
    return (
        f"{entry['ratio']:5.2f}x  named {sick['named']} ({sick['top']})  placed {sick['placed']}  "
        f"saving {sick['saving_inside']}  healthy {entry.get('loud_healthy', '-')}"
    )


def _gist(report: dict[str, Any] | None) -> dict[str, Any] | None:
    if report is None:
        return None
    told = [{key: f[key] for key in ("code", "severity", "saving", "where")} for f in report["findings"][:6]]
    return {"verdict": report["verdict"], "step": report["step"], "findings": told}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


__all__ = ["bars", "examine", "main", "summarise"]

if __name__ == "__main__":
    sys.exit(main())
