"""`gobrrr explain`: the codes, and the page of one."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from pathlib import Path
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr.remedies import registry
from gobrrr.remedies.edits.lossy import FORMS
from gobrrr.rules import load, pages
from gobrrr.rules.idioms import table as idioms

_CODE = re.compile(r"(?:BRR)?(\d{3})", re.IGNORECASE)


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "code", nargs="?", metavar="CODE", help="BRR401, a finding's, remedy's or idiom's name; none: list"
    )
    parser.add_argument("--oom", metavar="LOG", help="what an out-of-memory message in a log says; - for stdin")
    parser.add_argument("--json", action="store_true", help="the same as JSON (gobrrr.explanation/1)")


def run(args: argparse.Namespace) -> int:
    """Print the list or the page, or what a log's out-of-memory message means. Raises GobrrrError for a code that does
    not exist, and for a log without such a message."""
    if args.oom:
        return _explain_oom(args.oom, args.json)
    code = args.code and code_of(args.code)
    if args.json:
        from gobrrr.cli.reading.report import put
        from gobrrr.report.forms.json import as_json

        put(as_json(_document(code)), None)
    elif code is None:
        print(_listing())
    else:
        _show(_page(code))
    return 0


def code_of(word: str) -> str:
    """The code that is meant by `BRR401`, `brr401`, `401` or a finding's name; a remedy's, edit's or idiom's name.
    Raises GobrrrError for another word."""
    number = _CODE.fullmatch(word)
    code = f"BRR{number[1]}" if number else _names().get(word.lower(), "")
    if found := next(filter(_page, (code, word.lower(), word.lower().replace("-", "_"))), ""):
        return found
    if word in {each.name for each in FORMS}:
        raise GobrrrError(
            f"{word} is a lossy edit that gobrrr tune --accept tries", "docs/fix/lossy.md says what it does"
        )
    raise GobrrrError(f"there is no code '{word}'", _nearest(f"BRR{number[1]}" if number else word))


def _explain_oom(log: str, as_document: bool) -> int:
    from gobrrr.pipeline.runs import show_death
    from gobrrr.recording.trace_files.oom_log import MOST, in_text, read_log
    from gobrrr.rules.memory.out_of_memory import diagnosis
    from gobrrr.rules.verdict.place import reader

    oom = in_text(sys.stdin.read(MOST), "stdin") if log == "-" else read_log(Path(log))
    found = diagnosis(oom, reader(str(Path.cwd())))
    if as_document:
        from gobrrr.cli.reading.report import put
        from gobrrr.report.forms.json import as_json

        put(as_json(found), None)
    else:
        show_death(found, sys.stdout)
    return 0


def _page(name: str) -> str:
    if text := registry.text_of(name) or pages.text_of(name):
        return f"{text}\n{idioms.listed()}" if name == idioms.CODE else text
    known = idioms.idiom(name)
    return idioms.page(known) if known is not None else ""


def _nearest(word: str) -> str:
    """A hint that names the codes whose number or name is most like `word`."""
    known = {code: code for code in pages.codes()} | _names() | {each.name: each.name for each in idioms.idioms()}
    near = difflib.get_close_matches(word, sorted(known), n=3, cutoff=0.75)
    codes = dict.fromkeys(known[name] for name in near)
    return f"did you mean {' or '.join(codes)}?" if codes else "gobrrr explain lists them all"


def _names() -> dict[str, str]:
    """Finding's name to code."""
    return {rule.name.lower(): code for code, rule in load().items()}


def _listing() -> str:
    rules = load().values()
    width = max((len(rule.name) for rule in rules), default=0)
    lines = [f"{rule.code}  {rule.name:<{width}}  {rule.bound}" for rule in rules]
    return "\n".join([*lines, "", f"{len(lines)} codes; one in full: gobrrr explain CODE"])


def _document(code: str | None) -> dict[str, Any]:
    """All codes, or one with its page; of a remedy or an edit those that call for it."""
    shown = idioms.CODE if code and idioms.idiom(code) else code
    wanted = [rule for rule in load().values() if shown in (None, rule.code, *rule.remedies)]
    told = [{"code": each.code, "name": each.name, "bound": each.bound, "remedies": each.remedies} for each in wanted]
    return {"schema": "gobrrr.explanation/1", "codes": told, "page": _page(code) if code else None}


def _show(text: str) -> None:
    """Formatted for a terminal, as it stands for a file or a pipe."""
    if not sys.stdout.isatty():
        print(text.rstrip())
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))
