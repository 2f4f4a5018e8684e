"""The report as one page of HTML: works from `file:` without network and without JavaScript, and runs nothing foreign.

Three walls stand between a hostile name and the page: `plain` (no control character reaches it), Jinja2's autoescape,
and a Content-Security-Policy that allows one style sheet and one script, ours, by their hashes, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from gobrrr.report import pagefindings, pagetables, pagetime
from gobrrr.report.escape import plain
from gobrrr.report.formats import View
from gobrrr.report.json import to_json
from gobrrr.report.model import Report
from gobrrr.report.verdict import is_doubt

HERE = Path(__file__).parent
MOST_DATA = 1 << 20
"""Bytes of JSON that a page carries; a report is some 20 kB. One that is larger stays beside it."""


def to_html(report: Report, view: View) -> str:
    """The page. Pure but for the source that is quoted; the same report and source give the same bytes."""
    style, script = _part("page.css"), _part("page.js")
    return _template().render(
        policy=_policy(style, script), style=Markup(style), script=Markup(script), data=_data(report),
        report=report, facts=pagetables.facts(report),
        ledger=pagetime.ledger(report), phases=pagetime.phases(report), history=pagetime.history(report, view.steps),
        roofline=pagetables.roofline(report), memory=pagetables.memory(report), tables=pagetables.ops(report),
        findings=pagefindings.findings(report, view), doubts=[f for f in report.findings if is_doubt(f)],
        skipped=pagetables.skipped(report), about=pagetables.about(report),
        next_command=pagefindings.next_command(report),
    )  # fmt: skip


@cache
def _template() -> Template:
    """Whatever the template prints passes `plain` first, and then autoescape."""
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, finalize=_harmless,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return environment.get_template("page.html.j2")


def _harmless(value: Any) -> Any:
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _part(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Nothing is loaded from anywhere; of what is inline our own alone counts."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(report: Report) -> Markup:
    """The report as JSON for programs, with every text whole. ASCII without any character that ends a script block."""
    told = to_json(report)
    if len(told) > MOST_DATA:
        told = b'{"note": "too large for a page: see report.json"}'
    text = json.dumps(json.loads(told), separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
