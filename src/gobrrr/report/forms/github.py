"""The report as commands of GitHub Actions: annotations at the lines of a pull request.

GitHub shows ten errors and ten warnings of a step: findings come sorted by what they cost.
"""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr import units
from gobrrr.recording.model.facts import Span
from gobrrr.report.forms.sarif import inside, ordered, told
from gobrrr.rules.verdict.regression import Held
from gobrrr.rules.verdict.report import Report
from gobrrr.system.escape import plain

COMMANDS = {"critical": "error", "warning": "warning", "note": "notice"}


def to_github(report: Report, root: str, regression: Held | None = None) -> str:
    """One command a line: the regression, the findings, and the verdict with no line."""
    return "".join(f"{line}\n" for line in _lines(report, root, regression))


def _lines(report: Report, root: str, regression: Held | None) -> Iterator[str]:
    if regression:
        yield _regressed(regression, root)
    for finding in report.findings:
        saving = finding.saving
        cost = f" (up to {units.duration(saving.ceiling_ns)} a step)" if saving.ceiling_ns > 0 else ""
        said = f"{finding.message.rstrip('.')}{cost}. {finding.advice}".strip()
        where = ordered(finding.where, root)
        yield _command(COMMANDS.get(finding.severity, "notice"), f"{finding.code} {finding.name}", said,
                       where[0] if where else None, root)  # fmt: skip
    yield _command("notice", "gobrrr", report.verdict.sentence, None, root)


def _regressed(held: Held, root: str) -> str:
    where = next((growth.where for growth in held.grown if growth.where), None)
    return _command("error", "regression", told(held), where, root)


def _command(command: str, title: str, message: str, where: Span | None, root: str) -> str:
    place = f"file={_property(inside(where.file, root))},line={max(1, where.line)}," if where else ""
    place = place if where and inside(where.file, root) else ""  # elsewhere there is no line to stand at
    said = message if place or where is None else f"{message} At {where.file}:{where.line}."
    return f"::{command} {place}title={_property(title)}::{_data(said)}"


def _data(text: str) -> str:
    """Escape text for GitHub: a percent sign begins an escape, a line break ends the command."""
    return plain(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
