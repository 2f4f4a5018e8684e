"""What came of the zoo: rows of programs against bars, and the table as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from statistics import geometric_mean
from typing import Any

from benchmarks.zoo import scoring
from benchmarks.zoo.case import Case

Row = dict[str, Any]
TUNED, OF_BEST = 1.5, 0.97
"""Bars of the issue: the geometric mean of gains, and each gain over that of the best single remedy."""
TITLES = {
    "loop": "right loop and number of steps", "headline": "headline true", "line": "line useful",
    "sane": "no absurd figure", "same": "same output and exit code", "whole": "a report, no traceback",
}  # fmt: skip


def summary(cases: Sequence[Case], rows: Sequence[Row]) -> Row:
    """Programs with all that was seen of them, and bars."""
    seen = {(row["name"], row["kind"]): row for row in rows}
    programs = [_program(case, seen) for case in cases]
    return {"bars": bars(programs), "reach": reach(programs), "programs": programs}


def _program(case: Case, seen: dict[tuple[str, str], Row]) -> Row:
    truth, run, tune, picks, peer = (seen.get((case.name, kind)) for kind in ("truth", "run", "tune", "picks", "peer"))
    skipped = next((row["skipped"] for row in (truth, run, tune) if row and row["skipped"]), "")
    done = run if run is not None and "exit_codes" in run else None
    return {
        "name": case.name, "cause": case.cause, "kind": case.kind, "skipped": skipped, "truth": truth,
        "run": _public(run), "tune": _public(tune), "picks": (picks or {}).get("picks"), "peer": _public(peer),
        "scores": scoring.score(case, done, _here(truth, tune, picks)) if done else None,
        "absurd": scoring.absurd(done) if done else [],
    }  # fmt: skip


def _here(truth: Row | None, tune: Row | None, picks: Row | None) -> Row:
    """What was measured to bring how much, shares of the step [low, high]: remedies played alone, else the one that a
    tuning kept by itself; and the edit by hand."""
    saved, kept = (truth or {}).get("saved"), (tune or {}).get("kept", [])
    tuned = {kept[0]: [1 - 1 / end for end in tune["speedup"][1:]]} if tune and len(kept) == 1 else {}
    hand = {} if saved is None else {scoring.BY_HAND: [saved, saved]}
    return {**tuned, **(picks or {}).get("gains", {}), **hand}


def _public(row: Row | None) -> Row | None:
    """Without what programs put out and without places in libraries: both name folders of this machine."""
    if row is None:
        return None
    row = {key: value for key, value in row.items() if key not in ("told", "outputs", "failed")}
    if row.get("report"):
        findings = [{**each, "where": [{**at, "file": PurePath(at["file"]).name} for at in each["where"]]}
                    for each in row["report"]["findings"]]  # fmt: skip
        row["report"] = {**row["report"], "findings": findings}
    return row


def bars(programs: Sequence[Row]) -> dict[str, Row]:
    """Each bar's value and whether it is met; null where nothing was measured, which meets nothing. Of tunings alone
    those of `gobrrr run` are not asked."""
    found = {}
    asked = any(p["run"] for p in programs) or not any(p["tune"] for p in programs)
    for bar, least in scoring.BARS.items() if asked else ():
        held = [p["scores"][bar] for p in programs if p["scores"] and p["scores"][bar] is not None]
        value = sum(held) / len(held) if held else None
        title = f"{TITLES[bar]}, of {len(held)} programs at least {least:.0%}"
        found[title] = {"value": value, "met": value is not None and value >= least}
    there = sum(p["kind"] == "training" and not p["skipped"] for p in programs)
    return {**found, **_tuned_bars(_tuned_programs(programs), there)}


def _tuned_bars(programs: Sequence[Row], there: int) -> dict[str, Row]:
    """A mean over some of the trainings that are there meets nothing."""
    if not programs:
        return {}
    gains = [_gain(p) for p in programs]
    mean = geometric_mean(gains)
    title = f"tuned, geometric mean over {len(gains)} of {there} trainings at least {TUNED}"
    found = {title: {"value": mean, "met": mean >= TUNED and len(gains) >= there}}
    of_best = [
        gain / max([1.0, *p["picks"].values()])
        for gain, p in zip(gains, programs, strict=True)
        if p["picks"] is not None
    ]
    if of_best:
        title = f"tuned, least share of the best single remedy in {len(of_best)} programs at least {OF_BEST}"
        found[title] = {"value": min(of_best), "met": min(of_best) >= OF_BEST}
    return found


def reach(programs: Sequence[Row]) -> float | None:
    """Geometric mean over the tuned programs of the better of tune and the expert's edit of the source, which may do
    less than the program did (evaluate less often): what nobody exceeds who does not do better than both."""
    gains = [max(1.0, _gain(p), _by_hand(p)) for p in _tuned_programs(programs)]
    return geometric_mean(gains) if gains else None


def _tuned_programs(programs: Sequence[Row]) -> list[Row]:
    return [p for p in programs if p["tune"] and "speedup" in p["tune"]]


def _gain(program: Row) -> float:
    """Of a tuning; a program of which nothing was kept has gained 1."""
    speedup = program["tune"]["speedup"]
    return float(speedup[0]) if speedup else 1.0


def _by_hand(program: Row) -> float:
    """Times as fast as the program was, after the expert's edit; 1 where none is written."""
    saved = (program["truth"] or {}).get("saved")
    return 1.0 if saved is None else 1 / (1 - float(saved))


def table(found: Row) -> str:
    """The result as Markdown."""
    head = (
        f"# The zoo, {found['date']}\n\n{found['cpu']}, {found['cores']} cores, load {found['load']} at the end. "
        f"Python {found['python']}, torch {found['torch']}, gobrrr {found['gobrrr']}\n\n"
        "Programs whose training or inference code is a library's own. Steps and shares are from a clock that knows "
        "nothing of gobrrr; 'by hand' is the time that the expert's fix takes away, both programs run in turn.\n\n"
        "| program | step | expert's cause | by hand | what `gobrrr run` says | misses | tune | best single | peer |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    told = "\n".join(
        f"- {'met   ' if bar['met'] else 'MISSED'} {name}: {_share(bar['value'])}"
        for name, bar in found["bars"].items()
    )
    rows = "\n".join(_line(program) for program in found["programs"])
    told += _peers(found["programs"])
    reached = (
        f"\n- the better of tune and the edit by hand, geometric mean: {_share(found['reach'])}"
        if found.get("reach")
        else ""
    )
    return f"{head}{rows}\n\n{told}{reached}\n"


def _peers(programs: Sequence[Row]) -> str:
    """In how many of the programs that it ran on TraceML names the right phase."""
    said = [p["peer"] for p in programs if p.get("peer") and "said" in p["peer"]]
    right = sum(each["right_phase"] for each in said)
    return (
        f"\n- TraceML {said[0]['peer']} names the phase of the expert's cause in {right} of {len(said)}" if said else ""
    )


def _line(program: Row) -> str:
    if program["skipped"]:
        return f"| {program['name']} |  | {program['cause']} | skipped: it needs {program['skipped']} |  |  |  |  |  |"
    cells = [program["name"], _step(program), _cause(program), _saved(program["truth"]), _says(program),
             _misses(program), *_tuned(program["tune"], program["picks"] or {}), _peer(program["peer"])]  # fmt: skip
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def _step(program: Row) -> str:
    clock = (program["run"] or {}).get("clock")
    return f"{clock['steps']} x {clock['step_ms']:.0f} ms, {program['kind']}" if clock else str(program["kind"])


def _cause(program: Row) -> str:
    clock = (program["run"] or {}).get("clock")
    if not clock:
        return str(program["cause"])
    spent = ", ".join(f"{name} {share:.0%}" for name, share in clock["phases"].items() if share >= 0.05)
    ops = ", ".join(f"{name.removeprefix('aten::')} {share:.0%}" for name, share in clock["ops"][:2])
    return f"{program['cause']} ({spent}; ops: {ops})"


def _saved(truth: Row | None) -> str:
    saved, cores = ((truth or {}).get(key) for key in ("saved", "cores"))
    return "" if saved is None else f"{saved:.0%}{f' ({cores} cores)' if cores else ''}"


def _says(program: Row) -> str:
    run = program["run"]
    if not run:
        return ""
    return str(run["report"]["verdict"]["sentence"]) if run.get("report") else "no report"


def _misses(program: Row) -> str:
    scores = program["scores"] or {}
    missed = [bar for bar, held in scores.items() if held is False]
    return ", ".join([*missed, *program["absurd"]]) or ("none" if scores else "")


def _tuned(tune: Row | None, picks: dict[str, float]) -> tuple[str, str]:
    if not tune or "speedup" not in tune:
        return ("failed" if tune else "", "")
    gain = tune["speedup"]
    best = max(picks.items(), key=lambda pick: pick[1], default=None)
    shown = f"{gain[0]:.2f} ({gain[1]:.2f} to {gain[2]:.2f}) {', '.join(tune['kept'])}" if gain else "nothing kept"
    told = [f"{tune[key]:g} {unit}" for key, unit in (("cores", "cores"), ("minutes", "min")) if tune.get(key)]
    shown += f" ({', '.join(told)})" if told else ""
    return shown, f"{best[1]:.2f} {best[0]}" if best else ""


def _peer(row: Row | None) -> str:
    """What TraceML says, and whether it names the phase where the expert's cause lies."""
    if not row:
        return ""
    return f"{row['said']}{'' if row['right_phase'] else ', another phase'}" if "said" in row else "none"


def _share(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}"
