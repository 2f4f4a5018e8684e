"""The Facts of a recording: what capture noted at several moments, put together with the journal's counts."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from gobrrr.recording import marks
from gobrrr.recording.facts import Facts
from gobrrr.recording.run import Recording
from gobrrr.recording.steps import Step


def facts_of(recording: Recording, plain: list[Step]) -> Facts:
    """Facts of the steady state. What cannot be converted to its type stays at its default."""
    raw = _latest(recording.raw_facts)
    counted = recording.counted
    settings = dict(_moment(recording, "steady").get("settings") or raw.get("settings") or {})
    switches = counted.get("switches") or {}
    settings.update({name: switches[name] for name in ("anomaly", "autocast") if switches.get(name)})
    memory = raw.get("memory") or {}
    values: dict[str, Any] = {
        "settings": settings,
        "loaders": _loaders(recording, raw.get("loaders") or []),
        "optimizers": [{**o, "micro_steps": _micro_steps(recording)} for o in raw.get("optimizers") or []],
        "modules": [_module(m, recording, len(plain)) for m in raw.get("modules") or []],
        "orphans": counted.get("orphans"),
        "inputs": counted.get("inputs") or [],
        "denormals": counted.get("denormals") or [],
        "held_graphs": counted.get("held") or [],
        "compile": _compile(recording),
        "saved": _saved(counted),
        "saved_total": sum(s["num_bytes"] for s in counted["saved"]) if counted.get("saved") is not None else None,
        "gc_span": counted.get("gc_span"),
        **{name: memory.get(name) for name in ("rss_bytes", "peak_rss_bytes", "memory_limit", "swap_used")},
        **_rates(recording, plain),
    }
    return _typed(values)


def _typed(values: dict[str, Any]) -> Facts:
    """Field by field, so that one odd value costs that field only."""
    kept: dict[str, Any] = {}
    for field in msgspec.structs.fields(Facts):
        if field.name in values and values[field.name] is not None:
            try:
                kept[field.name] = msgspec.convert(values[field.name], field.type)
            except msgspec.ValidationError:
                continue
    return Facts(**kept)


def _moment(recording: Recording, moment: str) -> dict[str, Any]:
    return next((f for f in reversed(recording.raw_facts) if f.get("moment") == moment), {})


def _latest(raw: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Per table the last moment at which it was not empty: at the program's end its objects may be gone."""
    found: dict[str, Any] = {}
    for facts in raw:
        found.update({name: value for name, value in facts.items() if value})
    return found


def _micro_steps(recording: Recording) -> float:
    """Training forwards per update."""
    kinds, values = recording.events[:, 1], recording.events[:, 3]
    forwards = np.count_nonzero((kinds == marks.FORWARD) & (values == 3))
    updates = np.count_nonzero((kinds == marks.BOUNDARY) & (values == 1))
    return float(max(1.0, forwards / updates)) if updates else 1.0


def _module(raw: dict[str, Any], recording: Recording, num_steps: int) -> dict[str, Any]:
    """A module with what the counting step saw of it."""
    root = (recording.counted.get("roots") or {}).get(str(raw.get("id"))) or {}
    steps = max(1, int(recording.counted.get("steps") or 1))
    seen = {
        "calls_per_step": float(root.get("calls") or 0.0) / steps,
        "repeated_inputs": math.ceil(float(root.get("repeated") or 0.0) / steps),
        "repeated_span": root.get("repeated_span"),
        "span": root.get("span"),
    }
    if "grad_enabled" in root:
        seen["grad_enabled"] = bool(root["grad_enabled"])
    else:
        flags = recording.events[
            (recording.events[:, 1] == marks.FORWARD) & (recording.events[:, 2] == raw.get("id", -1)), 3
        ]
        seen["grad_enabled"] = bool(np.median(flags) >= 2) if len(flags) else True
    return {**raw, **{name: value for name, value in seen.items() if value is not None}}


def _saved(counted: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "module": s.get("module", ""),
            "op": s.get("op", ""),
            "num_bytes": s["num_bytes"],
            "count": s["count"],
            "span": s["span"] if s["span"].get("file") else None,
        }
        for s in counted.get("saved") or []
    ]


def _loaders(recording: Recording, raw: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Iterators of one loader joined, with the times of their epochs' starts."""
    events = recording.events
    number_of = {entry.get("id"): tuple(entry.get("key") or ()) for entry in raw}
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for entry in raw:
        kept = {name: value for name, value in entry.items() if name != "key"}
        merged.setdefault(tuple(entry.get("key") or ()), kept)
    starts: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    firsts: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    batches: dict[tuple[Any, ...], int] = defaultdict(int)
    made = begun = 0
    wanted = np.isin(events[:, 1], (marks.ITER, marks.DATA_BEGIN, marks.DATA_END))
    for t, kind, number, value in events[wanted].tolist():
        key = number_of.get(number, ())
        if kind == marks.ITER:
            made = t
        elif kind == marks.DATA_BEGIN:
            begun = t
            if made:
                starts[key].append(t - made)
        elif value == 0:
            batches[key] += 1
            if made:
                firsts[key].append(t - begun)
                made = 0
    return [
        {**entry, "iter_ns": starts[key], "first_wait_ns": firsts[key], "num_batches": batches[key]}
        for key, entry in merged.items()
    ]


def _compile(recording: Recording) -> dict[str, Any]:
    """torch.compile's counters now, less what they were when the steps became steady."""
    last: dict[str, Any] = next((f["compile"] for f in reversed(recording.raw_facts) if f.get("compile")), {})
    first = _moment(recording, "steady").get("compile") or {}
    if not last:
        return {}
    kept = {
        name: last[name] for name in ("used", "num_graphs", "graph_breaks", "break_reasons", "break_spans", "limit_hit")
    }
    return {
        **kept,
        "recompiles": max(0, last["num_graphs"] - first.get("num_graphs", 0)) if first else 0,
        "recompile_ns": max(0, last["compile_ns"] - first.get("compile_ns", 0)) if first else 0,
        "reasons": last.get("reasons") or [],
    }


def _rates(recording: Recording, plain: list[Step]) -> dict[str, float | None]:
    """Growth, faults, collections and load per plain step, from the journal's vitals."""
    if not plain:
        return {}
    events = recording.events
    steps = len(plain)
    collected = [
        events[(events[:, 1] == marks.GC) & (events[:, 0] > s.start) & (events[:, 0] <= s.end), 3] for s in plain[:500]
    ]
    found: dict[str, float | None] = {
        "gc_ns_per_step": float(sum(int(c.sum()) for c in collected)) / max(1, len(collected)),
        "gc_runs_per_step": float(sum(len(c) for c in collected)) / max(1, len(collected)),
        "rss_growth_per_step": _growth(recording, plain),
        "minor_faults_per_step": _per_step(recording, marks.FAULTS, plain),
    }
    process, wall = _total(recording, marks.CPU, plain), _span(recording, plain)
    busy = _total(recording, marks.BUSY, plain)
    if process is not None and wall:
        found["process_load"] = process / wall
        if busy is not None and steps > 5:
            found["other_load"] = max(0.0, (busy - process) / wall)
    return found


def _stretches(recording: Recording, plain: list[Step]) -> list[tuple[int, int]]:
    """Stretches of time in which only plain steps ran: windows cut them."""
    events = recording.events
    cuts = events[np.isin(events[:, 1], (marks.WINDOW_BEGIN, marks.WINDOW_END)), 0].tolist()
    edges = [plain[0].start, *cuts, plain[-1].end]
    inside = [(a, b) for a, b in pairwise(edges) if any(a <= s.start and s.end <= b for s in plain)]
    return inside


def _vitals(recording: Recording, kind: int, begin: int, end: int) -> np.ndarray[Any, Any]:
    events = recording.events
    rows: np.ndarray[Any, Any] = events[(events[:, 1] == kind) & (events[:, 0] >= begin) & (events[:, 0] <= end)]
    return np.stack((rows[:, 0], rows[:, 3]), axis=1)


def _total(recording: Recording, kind: int, plain: list[Step]) -> float | None:
    parts = [_vitals(recording, kind, a, b) for a, b in _stretches(recording, plain)]
    spans = [p for p in parts if len(p) > 1]
    return float(sum(p[-1, 1] - p[0, 1] for p in spans)) if spans else None


def _span(recording: Recording, plain: list[Step]) -> float:
    parts = [_vitals(recording, marks.CPU, a, b) for a, b in _stretches(recording, plain)]
    return float(sum(p[-1, 0] - p[0, 0] for p in parts if len(p) > 1))


def _per_step(recording: Recording, kind: int, plain: list[Step]) -> float | None:
    """A counter's rate times the median plain step."""
    total, span = _total(recording, kind, plain), 0.0
    parts = [_vitals(recording, kind, a, b) for a, b in _stretches(recording, plain)]
    span = float(sum(p[-1, 0] - p[0, 0] for p in parts if len(p) > 1))
    if total is None or not span:
        return None
    return total / span * float(np.median([s.wall for s in plain]))


def _growth(recording: Recording, plain: list[Step]) -> float | None:
    """Resident bytes per step: the median slope between pairs of samples (Theil-Sen) of the longest stretch."""
    stretches = _stretches(recording, plain)
    if not stretches:
        return None
    begin, end = max(stretches, key=lambda s: s[1] - s[0])
    rows = _vitals(recording, marks.RSS, begin, end).astype(float)
    if len(rows) < 8:
        return None
    rows = rows[:: max(1, len(rows) // 200)]
    i, j = np.triu_indices(len(rows), max(1, len(rows) // 4))
    slopes = (rows[j, 1] - rows[i, 1]) / (rows[j, 0] - rows[i, 0])
    return float(np.median(slopes) * np.median([s.wall for s in plain]))
