"""The forms that a report is written in: one small registry, so that adding a form touches one place.

Renderers are imported when one is used: `gobrrr --help` must not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from gobrrr.errors import GobrrrError

if TYPE_CHECKING:
    from gobrrr.ledger.compare.comparison import Comparison
    from gobrrr.ledger.job.ranks import Job
    from gobrrr.recording.live.now import Now
    from gobrrr.recording.run_folder.run import Recording
    from gobrrr.report.timeline.timeline import Timeline
    from gobrrr.report.told.history import StepTime
    from gobrrr.rules.verdict.report import Report
    from gobrrr.trial.receipt.receipt import Receipt


class View(NamedTuple):
    """Facts that a renderer may use beside the report: where source lies, what to mask in it, how the run went."""

    root: str = ""
    """Source lines and relative paths start here."""
    anywhere: bool = False
    """Source may be read outside `root`: only of a program that has just run here."""
    mask: Callable[[str], str] = str
    """Masks what --redact hides, in everything that is read beside the report."""
    recorded_ns: int | None = None
    """When it was recorded (ns since the epoch): source that is younger has changed since."""
    steps: tuple[StepTime, ...] = ()
    """Every step of the run, where the recording is at hand."""
    timeline: Timeline | None = None
    """Where the time of one step goes, where the recording is at hand."""
    next_command: str = ""
    """Command to type next, where the verb knows it."""
    num_ops: int = 12
    """Ops of a comparison that are listed as text."""
    ranks: Iterable[tuple[Report | None, Recording | None]] = ()
    """Every rank's report and recording, for a form that draws recordings themselves; of a job one is read after
    another."""


class Format(NamedTuple):
    """A form: its name on the command line, the suffixes that mean it, and its renderer of each noun that it has."""

    name: str
    suffixes: tuple[str, ...]
    render: Callable[[Report, View], bytes]
    receipt: Callable[[Receipt, View], bytes] | None = None
    comparison: Callable[[Comparison, View], bytes] | None = None
    job: Callable[[Job, View], bytes] | None = None
    view: Callable[[Now, View], bytes] | None = None
    draws: Callable[[Report | None, View], Iterator[bytes]] | None = None
    """Draws the recordings of View.ranks, in pieces: the output may be too large to hold in memory."""


def _text(report: Report, view: View) -> bytes:
    from gobrrr.report.text.report import render
    from gobrrr.rules.verdict.place import reader

    source = reader(view.root, view.anywhere, view.mask)
    return render(report, root=view.root, source=source).encode("utf-8", "replace")


def _json(report: Report, view: View) -> bytes:
    from gobrrr.report.forms.json import to_json

    return to_json(report)


def _markdown(report: Report, view: View) -> bytes:
    from gobrrr.report.forms.markdown import to_markdown

    return to_markdown(report, view.root).encode("utf-8", "replace")


def _csv(report: Report, view: View) -> bytes:
    from gobrrr.report.forms.csv import to_csv

    return to_csv(report).encode("utf-8", "replace")


def _html(report: Report, view: View) -> bytes:
    from gobrrr.report.html.html import to_html

    return to_html(report, view).encode("utf-8", "replace")


def _perfetto(report: Report | None, view: View) -> Iterator[bytes]:
    from gobrrr.report.timeline.perfetto import job_to_perfetto, to_perfetto

    if report is None or (isinstance(view.ranks, Sequence) and len(view.ranks) > 1):
        return job_to_perfetto(view.ranks, view.mask)
    return to_perfetto(report, next((recording for _, recording in view.ranks), None), view.mask)


def _perfetto_whole(noun: Report | Job, view: View) -> bytes:
    from gobrrr.rules.verdict.report import Report

    return b"".join(_perfetto(noun if isinstance(noun, Report) else None, view))


def _receipt_text(receipt: Receipt, view: View) -> bytes:
    from gobrrr.report.text.tuning import render

    return render(receipt).encode("utf-8", "replace")


def _receipt_json(receipt: Receipt, view: View) -> bytes:
    from gobrrr.report.forms.json import as_json

    return as_json(receipt)


def _receipt_markdown(receipt: Receipt, view: View) -> bytes:
    from gobrrr.report.forms.tuning_markdown import to_markdown

    return to_markdown(receipt).encode("utf-8", "replace")


def _receipt_html(receipt: Receipt, view: View) -> bytes:
    from gobrrr.report.html.html import tuning_to_html

    return tuning_to_html(receipt, view).encode("utf-8", "replace")


def _comparison_text(found: Comparison, view: View) -> bytes:
    from gobrrr.report.text.comparison import render

    return render(found, num_ops=view.num_ops).encode("utf-8", "replace")


def _comparison_json(found: Comparison, view: View) -> bytes:
    from gobrrr.report.forms.json import as_json

    return as_json(found)


def _comparison_markdown(found: Comparison, view: View) -> bytes:
    from gobrrr.report.forms.comparison_markdown import to_markdown

    return to_markdown(found, view.num_ops).encode("utf-8", "replace")


def _comparison_html(found: Comparison, view: View) -> bytes:
    from gobrrr.report.html.html import comparison_to_html

    return comparison_to_html(found).encode("utf-8", "replace")


def _job_text(job: Job, view: View) -> bytes:
    from gobrrr.report.told.job import render

    return render(job).encode("utf-8", "replace")


def _job_json(job: Job, view: View) -> bytes:
    from gobrrr.report.forms.json import as_json

    return as_json(job)


def _job_markdown(job: Job, view: View) -> bytes:
    from gobrrr.report.told.job import job_to_markdown

    return job_to_markdown(job).encode("utf-8", "replace")


def _job_html(job: Job, view: View) -> bytes:
    from gobrrr.report.html.html import job_to_html

    return job_to_html(job).encode("utf-8", "replace")


def _now_text(found: Now, view: View) -> bytes:
    from gobrrr.report.live.top import render

    return render(found).encode("utf-8", "replace")


def _now_json(found: Now, view: View) -> bytes:
    from gobrrr.report.forms.json import as_json

    return as_json(found)


def _sarif(report: Report, view: View) -> bytes:
    from gobrrr.report.forms.sarif import to_sarif

    return to_sarif(report, view.root)


def _github(report: Report, view: View) -> bytes:
    from gobrrr.report.forms.github import to_github

    return to_github(report, view.root).encode("utf-8", "replace")


FORMATS: tuple[Format, ...] = (
    Format("text", (".txt",), _text, _receipt_text, _comparison_text, _job_text, _now_text),
    Format("json", (".json",), _json, _receipt_json, _comparison_json, _job_json, _now_json),
    Format("markdown", (".md", ".markdown"), _markdown, _receipt_markdown, _comparison_markdown, _job_markdown),
    Format("csv", (".csv",), _csv),
    Format("html", (".html", ".htm"), _html, _receipt_html, _comparison_html, _job_html),
    Format("sarif", (".sarif",), _sarif),
    Format("github", (), _github),
    Format("perfetto", (".perfetto.json.gz", ".perfetto.json"), _perfetto_whole, job=_perfetto_whole, draws=_perfetto),
)


def names() -> tuple[str, ...]:
    """Return the names that --format takes."""
    return tuple(form.name for form in FORMATS)


def by_suffix(file: str, default: str = "text") -> str:
    """The form that a file's name asks for: of several suffixes that it ends with the longest counts."""
    name = PurePath(file).name.lower()
    fitting = [(len(suffix), form.name) for form in FORMATS for suffix in form.suffixes if name.endswith(suffix)]
    return max(fitting, default=(0, default))[1]


def draws(name: str) -> bool:
    """Say whether a form draws recordings themselves, which View.ranks must then have."""
    return form_of(name).draws is not None


def pieces(noun: Report | None, name: str, view: View, file: str) -> Iterator[bytes]:
    """Return what to write into `file`, of a form that draws; compressed where the file's name ends in .gz."""
    from gobrrr.report.timeline.trace_events import gzipped

    found = form_of(name).draws
    assert found is not None
    return gzipped(found(noun, view)) if file.endswith(".gz") else found(noun, view)


def form_of(name: str) -> Format:
    """The row of a name. Raises KeyError for one that is none."""
    return {form.name: form for form in FORMATS}[name]


NOUNS = {"Receipt": "receipt", "Comparison": "comparison", "Job": "job", "Now": "view"}
"""Fields of Format by the type of a noun; all others are reports."""


def render(noun: Report | Receipt | Comparison | Job | Now, name: str, view: View) -> bytes:
    """A noun in a form. Raises KeyError for a name that is none, GobrrrError for a form that this noun lacks."""
    kind = NOUNS.get(type(noun).__name__, "render")
    check(name, kind)
    return getattr(form_of(name), kind)(noun, view)  # type: ignore[no-any-return]


def check(name: str, kind: str) -> None:
    """Raises GobrrrError for a form that a kind of noun, a field of Format, does not have."""
    if getattr(form_of(name), kind) is None:
        known = ", ".join(form.suffixes[0] for form in FORMATS if getattr(form, kind) is not None)
        raise GobrrrError(f"a {kind} has no {name} form", f"write it with -o as one of {known}")
