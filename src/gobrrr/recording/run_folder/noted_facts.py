"""The Facts of a recording: what capture noted at several moments, put together with the journal's counts."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.facts import Facts
from gobrrr.recording.model.micro_steps import micro_steps
from gobrrr.recording.model.steps import Step
from gobrrr.recording.model.vitals import rates
from gobrrr.recording.run_folder.iterators import loaders
from gobrrr.recording.run_folder.run import Recording

_DEVICE = ("device_peak_bytes", "device_reserved_bytes", "device_capacity_bytes", "device_failed")
_MEMORY = ("rss_bytes", "peak_rss_bytes", "runtime_bytes", "memory_limit", "swap_used", *_DEVICE)


def facts_of(recording: Recording, plain: list[Step]) -> Facts:
    """Facts of the steady state. What cannot be converted to its type stays at its default."""
    raw = _latest(recording.raw_facts)
    counted = recording.counted
    settings = dict(_dict(_moment(recording, "steady"), "settings") or _dict(raw, "settings"))
    switches = _dict(counted, "switches")
    settings.update({name: switches[name] for name in ("anomaly", "autocast") if switches.get(name)})
    memory = _memory(_dict(raw, "memory"), recording)
    values: dict[str, Any] = {
        "settings": settings,
        "loaders": loaders(recording.events, _table(raw, "loaders"), recording.main.key if recording.main else None),
        "optimizers": [_optimizer(o, recording) for o in _table(raw, "optimizers")],
        "modules": [_module(m, recording) for m in _table(raw, "modules")],
        "orphans": counted.get("orphans"),
        "inputs": counted.get("inputs") or [],
        "counted_steps": max(1, _count(counted, "steps")),
        "lengths": raw.get("lengths") or [],
        "pictures": raw.get("pictures"),
        "denormals": _denormals(recording),
        "held_graphs": counted.get("held") or [],
        "compile": _compile(recording),
        "children": raw.get("children"),
        "ranks": raw.get("ranks"),
        "saved": _saved(counted),
        "saved_total": sum(s["num_bytes"] for s in _saved(counted)) if counted.get("saved") is not None else None,
        "gc_span": counted.get("gc_span"),
        "gc_library": counted.get("gc_library"),
        "eval_span": counted.get("eval_span"),
        **{name: memory.get(name) for name in _MEMORY},
        **rates(recording, plain),
    }
    return _typed(values)


def _memory(noted: dict[str, Any], recording: Recording) -> dict[str, Any]:
    """Mapped files may be larger at the end than they were at the peak: it is no less than what was read of the
    process's own memory. What windows added to it stays in the process, and is the profiler's."""
    peak = noted.get("peak_rss_bytes")
    if type(peak) is not int:
        return noted
    grew = [(window.began, window.peak_grew) for window in recording.windows]
    own = recording.events[recording.events[:, 1] == event_kinds.OWN][:, [0, 3]].tolist()
    read = [value - sum(num for began, num in grew if began <= t) for t, value in own]
    return noted | {"peak_rss_bytes": max([peak - sum(num for _, num in grew), *read])}


def _denormals(recording: Recording) -> list[dict[str, Any]]:
    """Return the denormals that the counting steps saw and, later, the end of the sampled ones."""
    sampled = recording.window("sample")
    return [*_table(recording.counted, "denormals"), *(sampled.denormals if sampled is not None else [])]


def _typed(values: dict[str, Any]) -> Facts:
    """Convert field by field, so that one odd value costs that field only."""
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


def _dict(facts: dict[str, Any], name: str) -> dict[str, Any]:
    value = facts.get(name)
    return value if isinstance(value, dict) else {}


def _count(counters: dict[str, Any], name: str) -> int:
    value = counters.get(name)
    return value if isinstance(value, int) else 0


def _table(facts: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The entries of a table; what is none is left out."""
    entries = facts.get(name)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _optimizer(raw: dict[str, Any], recording: Recording) -> dict[str, Any]:
    """An optimizer with its micro-steps, and the gradients as they were when it had any: the last facts may have been
    noted after zero_grad()."""
    same = [o for facts in recording.raw_facts for o in _table(facts, "optimizers") if o.get("id") == raw.get("id")]
    grads = [o["grad_bytes"] for o in same if isinstance(o.get("grad_bytes"), int)]
    number = raw.get("id")
    micro = micro_steps(recording, number) if isinstance(number, int) else 1.0
    return {**raw, "micro_steps": micro, **({"grad_bytes": max(grads)} if grads else {})}


def _module(raw: dict[str, Any], recording: Recording) -> dict[str, Any]:
    """A module with what the counting step saw of it."""
    root = _dict(_dict(recording.counted, "roots"), str(raw.get("id")))
    steps = max(1, _count(recording.counted, "steps"))
    seen: dict[str, Any] = {
        "calls_per_step": _count(root, "calls") / steps,
        "repeated_inputs": math.ceil(_count(root, "repeated") / steps),
        "repeated_span": root.get("repeated_span"),
        "repeated_span_calls": _count(root, "repeated_span_calls") / steps,
        "repeated_share": _count(root, "repeated_size") / there
        if (there := _count(root, "repeated_span_size"))
        else None,
        "span": root.get("span"),
    }
    looks = [
        m.get("frozen")
        for facts in recording.raw_facts
        for m in _table(facts, "modules")
        if m.get("id") == raw.get("id")
    ]
    looks = [look for look in looks if look]
    hooks = [
        (_count(facts, "steps"), _count(m, "hooks"))
        for facts in recording.raw_facts
        for m in _table(facts, "modules")
        if m.get("id") == raw.get("id") and "hooks" in m
    ]
    if len(hooks) > 1 and hooks[-1][0] > hooks[0][0]:
        seen["hooks_per_step"] = (hooks[-1][1] - hooks[0][1]) / (hooks[-1][0] - hooks[0][0])
    if len(looks) > 1:
        seen["frozen_moved"] = any(look != looks[0] for look in looks)
    if "grad_enabled" in root:
        seen["grad_enabled"] = bool(root["grad_enabled"])
    else:
        events, number = recording.events, _count(raw, "id") if "id" in raw else -1
        flags = events[(events[:, 1] == event_kinds.FORWARD) & (events[:, 2] == number), 3]
        seen["grad_enabled"] = bool(np.median(flags) >= 2) if len(flags) else True
    return {**raw, **{name: value for name, value in seen.items() if value is not None}}


def _saved(counted: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tensors saved for backward, in the shape of recording.facts.SavedTensor."""
    named = ("module", "op", "num_bytes", "count")
    return [
        {name: entry[name] for name in named if name in entry}
        | {"span": entry["span"] if _dict(entry, "span").get("file") else None}
        for entry in _table(counted, "saved")
        if isinstance(entry.get("num_bytes"), int)
    ]


def _compile(recording: Recording) -> dict[str, Any]:
    """torch.compile's counters now, less what they were when the steps became steady."""
    last = next((_dict(f, "compile") for f in reversed(recording.raw_facts) if _dict(f, "compile")), {})
    first = _dict(_moment(recording, "steady"), "compile")
    if not last:
        return {}
    kept = ("used", "num_graphs", "graph_breaks", "break_reasons", "break_spans", "limit_hit", "reasons")
    since = {name: _count(last, name) - _count(first, name) if first else 0 for name in ("num_graphs", "compile_ns")}
    return {
        **{name: last[name] for name in kept if last.get(name) is not None},
        "recompiles": max(0, since["num_graphs"]),
        "recompile_ns": max(0, since["compile_ns"]),
    }
