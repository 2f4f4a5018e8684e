"""A report, tuning, sweep, comparison or job as one page of HTML: no network, complete without JavaScript.

Three walls stand between a hostile name and the page: `plain` (no control character reaches it), Jinja2's autoescape,
and a Content-Security-Policy that allows one style sheet and one script, ours, by their hashes, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gobrrr.ledger.comparison import Comparison
from gobrrr.ledger.job.ranks import Job
from gobrrr.report.forms.formats import PLAIN, View
from gobrrr.report.forms.json import as_json
from gobrrr.report.html import comparison_page, history_page, job_page, report_page, sweep_page, tuning_page
from gobrrr.report.told.blocks import plainly
from gobrrr.rules.verdict.history import History
from gobrrr.rules.verdict.report import Report
from gobrrr.system.escape import plain
from gobrrr.trial.receipt.receipt import Receipt
from gobrrr.trial.receipt.swept import Swept

HERE = Path(__file__).parent
MOST_DATA = 1 << 20
"""Bytes of JSON that a page carries; a report is some 20 kB. One that is larger stays beside it."""


PAGES: dict[type, tuple[str, Callable[[Any, View], dict[str, Any]]]] = {
    Report: ("page", report_page.parts), Receipt: ("tuning", tuning_page.parts),
    Comparison: ("comparison", comparison_page.parts), Job: ("job", job_page.parts),
    Swept: ("sweep", sweep_page.parts), History: ("history", history_page.parts),
}  # fmt: skip
"""Template of each noun, and what fills it."""


def to_html(noun: Any, view: View = PLAIN) -> str:
    """The page. Pure but for the source that is quoted; the same noun and source give the same bytes."""
    template, parts = PAGES[type(noun)]
    return page(f"{template}.html.j2", as_json(noun), **parts(noun, view))


def page(template: str, data: bytes, folder: Path = HERE, **parts: Any) -> str:
    """A template of a folder in the frame of all pages: policy, style, script, and what it was made of as JSON."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    own = f"style-src {_hash(style)}; script-src {_hash(script)}"  # nothing is loaded; of what is inline ours counts
    return _templates(folder).get_template(template).render(
        policy=f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'", style=Markup(style),
        script=Markup(script), data=_data(data), **parts,
    )  # fmt: skip


@cache
def _templates(folder: Path) -> Environment:
    """Whatever a template prints passes `plain` first, and then autoescape."""
    found = Environment(
        loader=FileSystemLoader([folder, HERE]), autoescape=True, undefined=StrictUndefined, finalize=_harmless,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    found.filters["plainly"] = plainly
    return found


def _harmless(value: Any) -> Any:
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(told: bytes) -> Markup:
    """JSON for programs, with every text whole. ASCII without any character that ends a script block."""
    if len(told) > MOST_DATA:
        told = b'{"note": "too large for a page: see the JSON beside it"}'
    text = json.dumps(json.loads(told), separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
