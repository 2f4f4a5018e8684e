"""The plain forms of edits: a keyword, a switch, a statement behind the imports or before training."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gobrrr.capture.source.statements import last_name
from gobrrr.remedies.edits.source import Change, Source, may_be_true
from gobrrr.remedies.edits.training import training


class Edit(Protocol):
    """An edit: the changes of a file, given the lines in it that a finding points to, the innermost first; none where
    it does not find its place."""

    def __call__(self, source: Source, lines: Sequence[int], /) -> list[Change]: ...


_CLOSES = re.compile(rb"(?:\s|\\|#[^\r\n]*[\r\n])*\)")
"""Parentheses around an argument, behind it, with comments in between."""


@dataclass(frozen=True)
class SetKeyword:
    """Give calls of these names a keyword."""

    calls: tuple[str, ...]
    keyword: str
    value: str
    of: tuple[str, ...] = ("torch",)
    """Packages that the calls are of."""
    unless: tuple[str, ...] = ()
    """Keywords that go against it where they are true."""
    without: tuple[str, ...] = ()
    """Keywords of any call in the file that go against it where they are true."""
    positional: int = sys.maxsize
    """More arguments without a name than this would hold it already."""
    raises: bool = False
    """A number that is larger stays."""
    no_streams: bool = False
    """Data sets that may be read from one end only are left alone."""
    seen: Collection[tuple[Path, int]] | None = None
    """Files and lines of calls that are known, of which each has its line for itself; None for all."""

    def __call__(self, source: Source, lines: Sequence[int] = ()) -> list[Change]:
        """Set it at all calls that lack it."""
        found = source.calls_from(self.of, self.calls)
        if self.seen is not None:
            found = [call for file, line in self.seen if file == source.file for call in _at(line, found)]
        given = [node for node in source.nodes(ast.keyword) if node.arg in self.without]
        if any(may_be_true(each.value) for each in given):
            return []
        calls = [call for call in found if self._lacks(call, source)]
        return [change for call in calls for change in _keyword(source, call, self.keyword, self.value)]

    def _lacks(self, call: ast.Call, source: Source) -> bool:
        """Whether the keyword is not there, or is another plain value, and nothing else in the call is against it; what
        * and ** bring is not known."""
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if None in given or any(isinstance(value, ast.Starred) for value in call.args):
            return False
        if len(call.args) > self.positional or any(may_be_true(given[name]) for name in self.unless if name in given):
            return False
        data = [*call.args[:1], *filter(None, [given.get("dataset")])]
        if self.no_streams and any(map(source.names.may_be_stream, data)):
            return False
        value = given.get(self.keyword)
        if value is None or not isinstance(value, ast.Constant):
            return value is None
        more = self.raises and isinstance(value.value, int) and value.value >= int(self.value)
        return repr(value.value) != self.value and not more


def _at(line: int, calls: Sequence[ast.Call]) -> list[ast.Call]:
    """The one that begins there; none of several, of which another may have been meant."""
    there = [call for call in calls if call.lineno <= line <= (call.func.end_lineno or 0)]
    return there if len(there) == 1 else []


def _keyword(source: Source, call: ast.Call, name: str, value: str) -> list[Change]:
    for keyword in call.keywords:
        if keyword.arg == name:
            return [source.replacing(keyword.value, value)]
    new, (_, end) = f"{name}={value}", source.span(call)
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not given:
        return [(end - 1, end - 1, new)]
    last = max(source.span(each)[1] for each in given)
    if last == end:  # a generator whose parentheses are the call's
        begin, _ = source.span(given[0])
        return [(begin, begin, "("), (last, last, f", {new})")]
    while (found := _CLOSES.match(source.data, last)) and found.end() < end:
        last = found.end()  # parentheses around the argument
    return [(last, last, f", {new}")]


@dataclass(frozen=True)
class SwitchOff:
    """Give calls of these names False where True stands."""

    calls: tuple[str, ...]

    def __call__(self, source: Source, lines: Sequence[int] = ()) -> list[Change]:
        """Switch all of them off."""
        first = [call.args[0] for call in source.calls_from(("torch",), self.calls) if call.args]
        on = [each for each in first if isinstance(each, ast.Constant) and each.value is True]
        return [source.replacing(each, "False") for each in on]


@dataclass(frozen=True)
class AddStatement:
    """Put a statement behind the imports of the first file that imports torch; where libraries alone do, of the script,
    with that import."""

    code: str

    def __call__(self, source: Source, lines: Sequence[int] = ()) -> list[Change]:
        """Add it; not where such a call comes later, and would win."""
        first = next((each for each in source.program if "torch" in each.modules()), source.program[0])
        there = (name := _called(self.code)) and source.program_calls(name)
        return (source.helper(self.code) or []) if source is first and not there else []


def _called(code: str) -> str:
    """The function that the last of these statements calls; nothing where it calls none, or is no Python."""
    try:
        last = ast.parse(code).body[-1]
    except SyntaxError:
        return ""
    while isinstance(last, ast.If):
        last = last.body[-1]
    return last_name(last.value.func) if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) else ""


@dataclass(frozen=True)
class BeforeTraining:
    """Put statements about `{model}` before what makes its optimizer or trainer, and a helper behind the imports."""

    code: str
    helper: str = ""

    def __call__(self, source: Source, lines: Sequence[int] = ()) -> list[Change]:
        """Add them before the first such statement that has a line of its own, in one file of the program."""
        first = next((each for each in source.program if training(each)), None)
        place = training(source) if source is first else None
        if place is None:
            return []
        code = self.code.replace("{model}", place.model)
        helper = source.helper(self.helper, place.above, place.bare)
        if code.splitlines()[-1] in source.text or helper is None:
            return []
        made = f"{place.model} = {source.code(place.made)}\n" if place.made is not None else ""
        named = [source.replacing(place.made, place.model)] if place.made is not None else []
        return [*helper, source.before(place.statement, made + code), *named]


@dataclass(frozen=True)
class Rewritten:
    """Write statements anew by a regular expression over what ast.unparse makes of them: those at the lines that a
    finding points to, or where it fits none of these, all of the file."""

    find: str
    put: str
    helper: str = ""

    def __call__(self, source: Source, lines: Sequence[int]) -> list[Change]:
        """Rewrite each that it fits, of those without a body."""
        plain = [node for node in source.nodes(ast.stmt) if not hasattr(node, "body")]
        fits = [node for node in plain if re.search(self.find, ast.unparse(node))]
        there = [node for node in fits if any(node.lineno <= line <= (node.end_lineno or 0) for line in lines)]
        if not lines:
            return []
        changes = [source.replacing(each, re.sub(self.find, self.put, ast.unparse(each))) for each in there or fits]
        return source.with_helper(self.helper, changes)
