"""Findings at lines of code: as SARIF 2.1.0 (OASIS, 2020, errata 01 of 2023), which GitHub's code scanning and editors
read, and as commands of GitHub Actions.

Findings are results. What has no line is a notification of the tool, as doubts about the measurement are: GitHub
refuses a file that holds a result without a location.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

import msgspec

import gobrrr
from gobrrr import units
from gobrrr.recording.model.facts import Span
from gobrrr.report.forms.formats import View
from gobrrr.report.told.findings import said
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.pages import text_of
from gobrrr.rules.verdict.place import CELL
from gobrrr.rules.verdict.regression import Held
from gobrrr.rules.verdict.report import Report
from gobrrr.system.escape import markdown, plain

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
BASE = "%SRCROOT%"
"""Base of relative locations: the folder that gobrrr was run in, wherever that is when the file is read."""
LEVELS = {"critical": "error", "warning": "warning", "note": "note"}
REGRESSION, DOUBT = "regression", "BRR9"
MOST_OF_A_DESCRIPTION = 1024
"""Characters that GitHub shows of a rule's full description."""
NS_PER_MS = 1e6  # ns in a millisecond (SI)
Json = dict[str, Any]


def to_sarif(report: Report, view: View) -> bytes:
    """The SARIF document, indented, ending with a newline; the same report gives the same bytes."""
    root, regression, verdict = view.root, view.regression, report.verdict
    firsts = {finding.code: finding for finding in reversed(report.findings)}
    rules = [_rule(finding) for finding in firsts.values()] + ([REGRESSION_RULE] if regression else [])
    every = [_result(finding, report, root) for finding in report.findings]
    every += [_regressed(regression, root)] if regression else []
    index = {rule["id"]: number for number, rule in enumerate(rules)}
    seen: Counter[str] = Counter()
    for each in every:  # where its rule stands; of two findings of a code in one function which it is
        mark = each["partialFingerprints"]["gobrrr/v1"]
        seen[mark] += 1
        each["ruleIndex"] = index[each["ruleId"]]
        each["partialFingerprints"]["gobrrr/v1"] = f"{mark}:{seen[mark]}"
    shown = [each for each in every if each["locations"] and not each["ruleId"].startswith(DOUBT)]
    run = {
        "tool": {"driver": {"name": "gobrrr", "version": gobrrr.__version__, "rules": rules}},
        "automationDetails": {"id": "gobrrr/"},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {BASE: {"description": _text("The folder that gobrrr was run in")}},
        "invocations": [{"executionSuccessful": verdict.bound != "unreliable",
                         "toolExecutionNotifications": [_notification(each) for each in every if each not in shown]}],
        "results": shown,
        "properties": {"verdict": plain(verdict.sentence), "bound": plain(verdict.bound), **_step(report)},
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})) + b"\n"


def _notification(each: Json) -> Json:
    rule = {"id": each["ruleId"], "index": each["ruleIndex"]}
    return {"level": each["level"], "message": each["message"], "associatedRule": rule}


def _step(report: Report) -> Json:
    step = report.step
    return {"stepMs": _ms(step.plain_wall_ns), "lowMs": _ms(step.low_ns), "highMs": _ms(step.high_ns)}


def _rule(finding: Finding) -> Json:
    """One code; help is its page. `name` is what GitHub shows beside the id."""
    page = text_of(finding.code)
    means = " ".join(page.partition("## What it means\n")[2].partition("\n## ")[0].split())
    unpaged = {**_text(finding.advice or finding.name), "markdown": markdown(finding.name)}
    return {
        "id": plain(finding.code), "name": plain(finding.name),
        "shortDescription": _text(f"{finding.name} ({finding.bound})"),
        "fullDescription": _text(means[:MOST_OF_A_DESCRIPTION] or finding.name),
        "help": {"text": page, "markdown": page} if page else unpaged,
        "defaultConfiguration": {"level": "warning"},
        "properties": {"tags": ["performance", plain(finding.bound)], "precision": "high"},
    }  # fmt: skip


def _result(finding: Finding, report: Report, root: str) -> Json:
    saving, cost = finding.saving, ""
    if saving.ceiling_ns > 0:
        expected, ceiling = units.duration(saving.expected_ns), units.duration(saving.ceiling_ns)
        cost = f"Expected to save {expected} per step, {ceiling} at most."
    properties = {
        "severity": plain(finding.severity), "bound": plain(finding.bound), "basis": plain(finding.basis),
        "confidence": plain(finding.confidence), **_step(report),
        "savingMs": {"low": _ms(saving.low_ns), "expected": _ms(saving.expected_ns), "ceiling": _ms(saving.ceiling_ns)},
        "remedies": list(map(plain, finding.remedies)),
    }  # fmt: skip
    level, places = LEVELS.get(finding.severity, "none"), ordered(finding.where, root)
    return _located(plain(finding.code), level, said(finding, between=cost), properties, places, root)


def _regressed(held: Held, root: str) -> Json:
    places = [growth.where for growth in held.grown if growth.where is not None]
    properties = {"ratio": held.ratio, "low": held.low, "high": held.high, "beforeMs": _ms(held.before_ns),
                  "stepMs": _ms(held.now_ns)}  # fmt: skip
    return _located(REGRESSION, "error", regressed(held), properties, places, root)


def regressed(held: Held) -> str:
    """The regression in one line, with what grew."""
    grown = [f"{growth.what.removeprefix('aten::')} +{units.duration(growth.delta_ns)}" for growth in held.grown]
    return f"{held.sentence} {'; '.join(grown)}".strip()


def _located(code: str, level: str, message: str, properties: Json, places: Sequence[Span], root: str) -> Json:
    """One result; the first of its places is where it is shown."""
    related = [{"id": number, **_location(span, root)} for number, span in enumerate(places[1:], 1)]
    return {
        "ruleId": code, "level": level, "message": _text(message),
        "partialFingerprints": {"gobrrr/v1": _fingerprint(code, places)}, "properties": properties,
        "locations": [_location(span, root) for span in places[:1]],
        **({"relatedLocations": related} if related else {}),
    }  # fmt: skip


def _location(span: Span, root: str) -> Json:
    place = {"artifactLocation": _artifact(span.file, root), "region": {"startLine": max(1, span.line)}}
    function = {"name": plain(span.function) or "module", "kind": "function"}
    return {"physicalLocation": place, "logicalLocations": [function]}


def _artifact(file: str, root: str) -> Json:
    """Relative to the folder where it lies below it, which is all that a repository shows; else as it is."""
    if below := inside(file, root):
        return {"uri": quote(below, errors="replace"), "uriBaseId": BASE}
    path = PurePath(file)
    uri = quote(path.as_posix() if path.is_absolute() else file, errors="replace")
    return {"uri": f"file://{uri}" if path.is_absolute() else uri}


def inside(file: str, root: str) -> str:
    """The path below `root`; empty where it lies elsewhere, or is no file (a notebook's cell, generated code)."""
    path = PurePath(file)
    if CELL.search(file) or file.startswith("<") or ".." in path.parts:
        return ""
    if path.is_absolute():
        return path.relative_to(root).as_posix() if root and path.is_relative_to(root) else ""
    return path.as_posix()


def ordered(where: Sequence[Span], root: str) -> list[Span]:
    """Lines below `root` first: what a library does is shown at the line that calls it."""
    return sorted(where, key=lambda span: not inside(span.file, root))


def _fingerprint(code: str, places: Sequence[Span]) -> str:
    """Return a hash of what stays when lines move: the finding's code, the file's name and the function."""
    place = [part for span in places[:1] for part in (PurePath(span.file).name, span.function)]
    return hashlib.sha256("\0".join((code, *place)).encode("utf-8", "replace")).hexdigest()[:32]


def _text(text: str) -> Json:
    """A message: braces are placeholders in one, and `](` would make a link of what a program says (3.11 of SARIF)."""
    return {"text": plain(text).replace("{", "{{").replace("}", "}}").replace("](", "] (")}


REGRESSION_RULE = {
    "id": REGRESSION, "name": "regression",
    "shortDescription": _text("The step takes surely longer than in the baseline"),
    "fullDescription": _text("The 95 % interval of the ratio of two median steps lies above the tolerance."),
    "help": _text("Look at the lines that grew; `gobrrr compare` holds two recordings against each other."),
    "defaultConfiguration": {"level": "error"},
    "properties": {"tags": ["performance"], "precision": "high"},
}  # fmt: skip


def _ms(ns: float) -> float:
    return round(ns / NS_PER_MS, 6)


COMMANDS = {"critical": "error", "warning": "warning", "note": "notice"}


def to_github(report: Report, view: View) -> str:
    """One command of GitHub Actions a line: the regression, the findings by cost (GitHub shows ten errors and ten
    warnings of a step), and the verdict with no line."""
    told = []
    if held := view.regression:
        where = next((growth.where for growth in held.grown if growth.where), None)
        told.append(_command("error", "regression", regressed(held), where, view.root))
    for finding in report.findings:
        saving = finding.saving
        cost = f" (up to {units.duration(saving.ceiling_ns)} a step)" if saving.ceiling_ns > 0 else ""
        where = next(iter(ordered(finding.where, view.root)), None)
        command = COMMANDS.get(finding.severity, "notice")
        told.append(_command(command, f"{finding.code} {finding.name}", said(finding, cost), where, view.root))
    told.append(_command("notice", "gobrrr", report.verdict.sentence, None, view.root))
    return "".join(f"{line}\n" for line in told)


def _command(command: str, title: str, message: str, where: Span | None, root: str) -> str:
    place = f"file={_property(inside(where.file, root))},line={max(1, where.line)}," if where else ""
    place = place if where and inside(where.file, root) else ""  # elsewhere there is no line to stand at
    told = message if place or where is None else f"{message} At {where.file}:{where.line}."
    return f"::{command} {place}title={_property(title)}::{_data(told)}"


def _data(text: str) -> str:
    """Escape text for GitHub: a percent sign begins an escape, a line break ends the command."""
    return plain(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
