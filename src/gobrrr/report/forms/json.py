"""The report as JSON (schema gobrrr.report/1) and back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from gobrrr.errors import TraceError
from gobrrr.report.forms.formats import View
from gobrrr.report.told.excerpts import excerpts
from gobrrr.rules.verdict.report import SCHEMA, Report

MAX_BYTES = 64 << 20
"""A report is some hundred kilobytes; more is not one."""
# DEL, C1 controls, marks and overrides of direction.
_UNSEEN = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def to_json(report: Report, view: View | None = None) -> bytes:
    """Deterministic, indented, ends with a newline. Nanoseconds are integers, shares have 6 digits, other floats 9.

    With a view each finding has its lines of source and its edits as well; null where nobody looked for edits.
    """
    fields = msgspec.to_builtins(report, order="deterministic")
    if view is not None:
        around = excerpts(view.root, view.anywhere, view.mask, view.recorded_ns)
        for finding, told in zip(report.findings, fields["findings"], strict=True):
            place = next(iter(finding.where), None)
            told["excerpt"] = {"file": place.file, "line": place.line, **around(place)._asdict()} if place else None
            told["edits"] = None if view.edits is None else view.edits.get(finding.code, ())
    fields["phases"] = [[name, _whole(ns)] for name, ns in fields["phases"]]
    return _shown(msgspec.json.format(msgspec.json.encode(_canonical(fields)), indent=2)) + b"\n"


def as_json(noun: Any, view: View | None = None, indent: int = 1) -> bytes:
    """A report; any other noun as it is, but for lone surrogates and figures that are none."""
    if isinstance(noun, Report):
        return to_json(noun, view)
    fields = _canonical(msgspec.to_builtins(noun), number=lambda value, key: value)
    return _shown(msgspec.json.format(msgspec.json.encode(fields), indent=indent)) + b"\n"


def _shown(data: bytes) -> bytes:
    """Whoever prints it meets no control of a terminal and nothing that turns a line round: escapes say the same."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode()).encode()


def from_json(data: bytes, name: str = "report") -> Report:
    """The typed report of `data`; TraceError, naming `name`, where it is not one."""
    if len(data) > MAX_BYTES:
        raise TraceError(f"{name}: {len(data)} bytes, a report has at most {MAX_BYTES}", "is it a trace?")
    try:
        report = msgspec.json.decode(data, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "gobrrr run writes one to .gobrrr/<run>/report.json"
        raise TraceError(f"{name}: not a report: {error}", hint) from None
    if report.schema != SCHEMA:
        raise TraceError(f"{name}: its schema is {report.schema!r}, this gobrrr reads {SCHEMA!r}")
    if not _in_range(msgspec.to_builtins(report)):
        raise TraceError(f"{name}: holds an integer beyond 64 bits")
    return report


def _number(value: float, key: str) -> float | int | str:
    """Not-a-number and infinity do not exist in JSON: in evidence they are words, elsewhere nothing was measured."""
    if not math.isfinite(value):
        return str(value) if key == "value" else 0
    if key == "ns" or key.endswith("_ns"):
        return _whole(value)
    return round(value, 6) if key.endswith("share") else float(f"{value:.9g}")


def _canonical(value: Any, key: str = "", number: Callable[[float, str], float | str] = _number) -> Any:
    """Without lone surrogates, and each float as `number` has it."""
    if isinstance(value, dict):
        return {_text(k): _canonical(v, k, number) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(v, key, number) for v in value]
    if isinstance(value, str):
        return _text(value)
    return number(value, key) if isinstance(value, float) else value


def _whole(value: float) -> int:
    return round(value) if math.isfinite(value) else 0


def _text(value: str) -> str:
    """Lone surrogates (file names that are not UTF-8) become '?': JSON has no place for them."""
    return value.encode("utf-8", "replace").decode("utf-8")


def _in_range(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_in_range, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_in_range, value))
    return not isinstance(value, int) or abs(value) < 1 << 63
