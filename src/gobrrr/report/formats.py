"""The forms that a report is written in: one small registry, so that adding a form touches one place.

Renderers are imported when one is used: `gobrrr --help` must not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gobrrr.report.history import StepTime
    from gobrrr.report.model import Report


class View(NamedTuple):
    """What a renderer may know beside the report: where source lies, what to mask in it, how the run went."""

    root: str = ""
    """Source lines and relative paths start here."""
    anywhere: bool = False
    """Source may be read outside `root`: only of a program that has just run here."""
    mask: Callable[[str], str] = str
    """What --redact masks, in whatever is read beside the report."""
    recorded_ns: int | None = None
    """When it was recorded (ns since the epoch): source that is younger has changed since."""
    steps: tuple[StepTime, ...] = ()
    """Every step of the run, where the recording is at hand."""


class Format(NamedTuple):
    """A form: its name on the command line, the suffixes that mean it, and its renderer."""

    name: str
    suffixes: tuple[str, ...]
    render: Callable[[Report, View], bytes]


def _text(report: Report, view: View) -> bytes:
    from gobrrr.report.place import reader
    from gobrrr.report.text import render

    source = reader(view.root, view.anywhere, view.mask)
    return render(report, root=view.root, source=source).encode("utf-8", "replace")


def _json(report: Report, view: View) -> bytes:
    from gobrrr.report.json import to_json

    return to_json(report)


def _markdown(report: Report, view: View) -> bytes:
    from gobrrr.report.markdown import to_markdown

    return to_markdown(report, view.root).encode("utf-8", "replace")


def _csv(report: Report, view: View) -> bytes:
    from gobrrr.report.csv import to_csv

    return to_csv(report).encode("utf-8", "replace")


def _html(report: Report, view: View) -> bytes:
    from gobrrr.report.html import to_html

    return to_html(report, view).encode("utf-8", "replace")


def _sarif(report: Report, view: View) -> bytes:
    from gobrrr.report.sarif import to_sarif

    return to_sarif(report, view.root)


def _github(report: Report, view: View) -> bytes:
    from gobrrr.report.github import to_github

    return to_github(report, view.root).encode("utf-8", "replace")


FORMATS: tuple[Format, ...] = (
    Format("text", (".txt",), _text),
    Format("json", (".json",), _json),
    Format("markdown", (".md", ".markdown"), _markdown),
    Format("csv", (".csv",), _csv),
    Format("html", (".html", ".htm"), _html),
    Format("sarif", (".sarif",), _sarif),
    Format("github", (), _github),
)


def names() -> tuple[str, ...]:
    """What --format takes."""
    return tuple(form.name for form in FORMATS)


def by_suffix(file: str, default: str = "text") -> str:
    """The form that a file's name asks for."""
    suffix = PurePath(file).suffix.lower()
    return next((form.name for form in FORMATS if suffix in form.suffixes), default)


def render(report: Report, name: str, view: View) -> bytes:
    """The report in a form. Raises KeyError for a name that is none."""
    return {form.name: form for form in FORMATS}[name].render(report, view)
