"""The forms that a report is written in: a registry as data, so that adding a form touches one row of it.

A noun becomes blocks (told/), and a form shows blocks, or has a renderer of its own for a noun. Renderers are named
here, and imported when one is used: `gobrrr --help` must not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from gobrrr.errors import GobrrrError

if TYPE_CHECKING:
    from gobrrr.recording.run_folder.run import Recording
    from gobrrr.report.timeline.gauge_lines import GaugeLines
    from gobrrr.report.timeline.timeline import StepTime, Timeline
    from gobrrr.report.told.blocks import Groups
    from gobrrr.rules.verdict.regression import Held
    from gobrrr.rules.verdict.report import Report

SORTS = {"self": "self_ns", "total": "total_ns", "average": "average_ns", "calls": "calls", "device": "device_ns",
         "rate": "flops_per_s", "peak": "of_peak", "name": ""}  # fmt: skip
"""Columns that a table of ops can be sorted by, words of the command line, and what each is of an OpRow."""


class View(NamedTuple):
    """Facts that a renderer may use beside the noun: where source lies, what to mask in it, how the run went."""

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
    gauges: GaugeLines | None = None
    """The computer's gauges over the run, likewise."""
    edits: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    """By finding's code the edits of the program that stand for its remedies, for JSON."""
    next_command: str = ""
    """Command to type next, where the verb knows it."""
    num_ops: int = 12
    """Ops of a comparison that are listed as text."""
    seconds: float = 0.0
    """Wall time of a tuning, where its receipt does not hold it."""
    price_per_hour: float | None = None
    """Price of an hour of this machine, for a tuning."""
    regression: Held | None = None
    """The report held against a baseline, for forms that show findings at their lines."""
    ranks: Iterable[tuple[Report | None, Recording | None]] = ()
    """Every rank's report and recording, for a form that draws them; of a job one is read after another."""


PLAIN = View()


class Format(NamedTuple):
    """A form: its name on the command line, the suffixes that mean it, and its renderers: (noun, view) -> content, each
    as where in this room it is, "module:function"."""

    name: str
    suffixes: tuple[str, ...]
    own: Mapping[str, str] = {}
    """By kind of noun, of KINDS."""
    blocks: str = ""
    """Shows the blocks of any other noun that has some."""
    draws: str = ""
    """Draws the recordings of View.ranks, in pieces: the output may be too large to hold in memory."""


KINDS = {
    "Report": ("report", "told.report"), "Receipt": ("receipt", "told.tuning"), "Job": ("job", "told.job"),
    "Comparison": ("comparison", "runs.comparison"), "Machine": ("machine", "told.machine"),
    "Now": ("view", "told.running"), "Checked": ("check", "told.checked"),
    "Swept": ("sweep", "memory.sweep"), "History": ("history", "runs.history"),
    "Look": ("look", "outside.outside"),
}  # fmt: skip
"""By type of a noun, its kind and the module whose blocks() says what is in it."""
_ALL = [kind for kind, _ in KINDS.values()]
_PAGES = ("report", "receipt", "comparison", "job", "sweep", "history")
FORMATS: tuple[Format, ...] = (
    Format("text", (".txt",), {"report": "text.report:whole"}, "text.page:rendered"),
    Format("json", (".json",), {**dict.fromkeys(_ALL, "forms.json:as_json"), "check": "told.checked:to_json"}),
    Format("markdown", (".md", ".markdown"), {}, "forms.markdown:rendered"),
    Format("csv", (".csv",), {"report": "forms.csv:to_csv"}),
    Format("html", (".html", ".htm"), dict.fromkeys(_PAGES, "html.html:to_html")),
    Format("sarif", (".sarif",), {"report": "forms.annotations:to_sarif"}),
    Format("github", (), {"report": "forms.annotations:to_github"}),
    Format("perfetto", (".perfetto.json.gz", ".perfetto.json"), draws="timeline.perfetto:drawn"),
)


def names(kind: str = "") -> tuple[str, ...]:
    """Return the names that --format takes."""
    return tuple(form.name for form in of_kind(kind))


def of_kind(kind: str) -> tuple[Format, ...]:
    """Return the forms that a kind of noun has; all where none is named."""
    return tuple(form for form in FORMATS if not kind or _has(form, kind))


def by_suffix(file: str, default: str = "text") -> str:
    """The form that a file's name asks for: of several suffixes that it ends with the longest counts."""
    name = PurePath(file).name.lower()
    fitting = [(len(suffix), form.name) for form in FORMATS for suffix in form.suffixes if name.endswith(suffix)]
    return max(fitting, default=(0, default))[1]


def named(word: str) -> str:
    """The form that a word after --format names, by its own name or by a suffix of its files: markdown, md."""
    return word if word in names() else by_suffix(f".{word}", word)


def draws(name: str) -> bool:
    """Say whether a form draws recordings themselves, which View.ranks must then have."""
    return bool(form_of(name).draws)


def pieces(noun: Report | None, name: str, view: View, file: str) -> Iterator[bytes]:
    """Return what to write into `file`, of a form that draws; compressed where the file's name ends in .gz."""
    from gobrrr.report.timeline.trace_events import gzipped

    drawn: Iterator[bytes] = _function(form_of(name).draws)(noun, view)
    return gzipped(drawn) if file.endswith(".gz") else drawn


def form_of(name: str) -> Format:
    """The row of a name. Raises KeyError for one that is none."""
    return {form.name: form for form in FORMATS}[name]


def blocks(noun: Any, view: View) -> Groups:
    """Return the blocks of a noun, in no form yet."""
    found: Groups = _function(f"{KINDS[type(noun).__name__][1]}:blocks")(noun, view)
    return found


def render(noun: Any, name: str, view: View) -> bytes:
    """A noun in a form. Raises KeyError for a name that is none, GobrrrError for a form that this noun lacks."""
    kind, form = KINDS[type(noun).__name__][0], form_of(name)
    check(name, kind)
    if form.draws:
        return b"".join(_function(form.draws)(noun if kind == "report" else None, view))
    own = form.own.get(kind)
    content = _function(own)(noun, view) if own else _function(form.blocks)(blocks(noun, view))
    return content if isinstance(content, bytes) else str(content).encode("utf-8", "replace")


def show(noun: Any, stream: TextIO, view: View = PLAIN) -> None:
    """Write a noun's blocks to a stream as suits that."""
    from gobrrr.report.text import page

    page.show(blocks(noun, view), stream)


def check(name: str, kind: str) -> None:
    """Raises GobrrrError for a form that a kind of noun does not have."""
    if not _has(form_of(name), kind):
        known = ", ".join(form.suffixes[0] for form in FORMATS if form.suffixes and _has(form, kind))
        why = f"a {kind} cannot be written in the format {name}"
        raise GobrrrError(why, f"end the name after -o in one of {known}")


def _has(form: Format, kind: str) -> bool:
    return bool(kind in form.own or form.blocks or (form.draws and kind in ("report", "job")))


def _function(renderer: str) -> Callable[..., Any]:
    module, _, name = renderer.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"gobrrr.report.{module}"), name)
    return found
