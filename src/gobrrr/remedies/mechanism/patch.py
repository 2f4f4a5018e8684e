"""Remedies as a person would write them: a diff against the files, where the place can be found in the source.

Only the text at the place changes; what cannot be located is left to the remedy's page.
"""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from gobrrr.remedies.mechanism.source_names import Names
from gobrrr.remedies.model import AddStatement, BeforeTraining, Edit, SetKeyword, SwitchOff

Change = tuple[int, int, str]
"""Byte offsets begin and end, and what stands there instead."""
_CLOSES = re.compile(rb"(?:\s|\\|#[^\r\n]*[\r\n])*\)")
"""Parentheses around an argument, behind it, with comments in between."""
_MARK = "\ufeff"
"""Mark that some editors of Windows leave before a file's text; in a string it is no Python."""


def diff(files: Iterable[Path], edits: Sequence[Edit], root: Path) -> str:
    """A unified diff of all files that change, with paths relative to `root`; empty where nothing can be located."""
    parts: list[str] = []
    for file in dict.fromkeys(file.resolve() for file in files):
        try:
            before = file.read_bytes().decode()  # line ends as they are
            here = [
                replace(
                    edit, seen=tuple(each for each in edit.seen if each[0] == file)
                )  # of the known calls those here
                if isinstance(edit, SetKeyword) and edit.seen is not None
                else edit
                for edit in edits
            ]
            after = patched(before, here)
        except (OSError, UnicodeDecodeError, SyntaxError, ValueError, RecursionError):
            continue  # not Python that can be read: the recipe works without
        name = str(file.relative_to(root.resolve()) if file.is_relative_to(root.resolve()) else file)
        if after != before and name.isprintable():
            tab = "\t" if " " in name else ""  # the name would end at the blank, for patch(1)
            parts += difflib.unified_diff(_lines(before), _lines(after), f"a/{name}{tab}", f"b/{name}{tab}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in parts)


def _lines(text: str) -> list[str]:
    """Cut a text into lines as tools that apply patches do: str.splitlines would cut at a form feed as well."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def patched(source: str, edits: Sequence[Edit]) -> str:
    """The source with edits made, but for those after which it would not compile. Raises SyntaxError for what is not
    Python."""
    if source.startswith(_MARK):
        return _MARK + patched(source.removeprefix(_MARK), edits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the program's own code
        tree = ast.parse(source)
        text, names = _Text(source), Names(tree)
        found = [_changes(tree, edit, text, names) for edit in edits]
        sound = [changes for changes in found if _compiles(text.with_changes(changes))]
        after = text.with_changes(change for changes in sound for change in changes)
        return after if _compiles(after) else source


def _changes(tree: ast.Module, edit: Edit, text: _Text, names: Names) -> list[Change]:
    if isinstance(edit, SetKeyword):
        found = _calls_from(tree, edit.of, edit.calls, names)
        known = found if edit.seen is None else [call for _, line in edit.seen if (call := _at(line, found))]
        given = [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg in edit.without]
        if any(_may_be_true(each.value) for each in given):
            return []
        calls = [call for call in known if _lacks(call, edit, names)]
        return [change for call in calls for change in _keyword(call, edit, text)]
    if isinstance(edit, SwitchOff):
        calls = _calls_from(tree, ("torch",), edit.calls, names)
        return [change for call in calls if (change := _off(call, text)) is not None]
    if isinstance(edit, BeforeTraining):
        return _before_training(tree, edit, text)
    there = (name := _called(edit.code)) and _calls(tree, [name])  # such a call comes later, and would win
    return [] if there else _statement(tree, edit, text)


def _compiles(source: str) -> bool:
    try:
        compile(source, "<patched>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


class _Text:
    """Source by line and column, as ast counts them: in bytes of UTF-8."""

    def __init__(self, source: str) -> None:
        self.data = source.encode()
        ends = re.search(rb"\r\n|\r|\n", self.data)
        self._newline = ends[0] if ends else b"\n"
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.end_lineno, node.end_col_offset)

    def line_end(self, at: int) -> int:
        """Return where the line ends that a place is in."""
        found = re.compile(rb"[\r\n]").search(self.data, at)
        return found.start() if found else len(self.data)

    def with_changes(self, changes: Iterable[Change]) -> str:
        data = self.data
        for begin, end, new in sorted(changes, reverse=True):
            data = data[:begin] + new.encode().replace(b"\n", self._newline) + data[end:]
        return data.decode()


def _calls(tree: ast.AST, names: Iterable[str]) -> list[ast.Call]:
    """Calls of one of these names, whatever they are reached through (optim.AdamW, torch.optim.AdamW, AdamW)."""
    wanted = set(names)
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _last_name(node.func) in wanted]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _calls_from(tree: ast.AST, packages: Sequence[str], wanted: Sequence[str], names: Names) -> list[ast.Call]:
    """Calls of what these packages have under these names, whatever the file calls it."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if names.is_from(call.func, packages, wanted)]


def _at(line: int, calls: Sequence[ast.Call]) -> ast.Call | None:
    """The one that begins there; nothing of several, of which another may have been meant."""
    there = [call for call in calls if call.lineno <= line <= (call.func.end_lineno or 0)]
    return there[0] if len(there) == 1 else None


def _lacks(call: ast.Call, edit: SetKeyword, names: Names) -> bool:
    """Whether the keyword is not there, or is another plain value, and nothing else in the call is against it; what *
    and ** bring is not known."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if None in given or any(isinstance(value, ast.Starred) for value in call.args):
        return False
    if len(call.args) > edit.positional:
        return False
    if any(_may_be_true(given[name]) for name in edit.unless if name in given):
        return False
    if edit.no_streams and any(map(names.may_be_stream, [*call.args[:1], *filter(None, [given.get("dataset")])])):
        return False
    value = given.get(edit.keyword)
    if value is None or not isinstance(value, ast.Constant):
        return value is None
    more = edit.raises and isinstance(value.value, int) and value.value >= int(edit.value)
    return repr(value.value) != edit.value and not more


def _may_be_true(value: ast.expr) -> bool:
    return not isinstance(value, ast.Constant) or bool(value.value)


def _keyword(call: ast.Call, edit: SetKeyword, text: _Text) -> list[Change]:
    for keyword in call.keywords:
        if keyword.arg == edit.keyword:
            value = keyword.value
            return [(text.at(value.lineno, value.col_offset), text.end(value), edit.value)]
    new, end = f"{edit.keyword}={edit.value}", text.end(call)
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not given:
        return [(end - 1, end - 1, new)]
    last = max(text.end(each) for each in given)
    if last == end:  # a generator whose parentheses are the call's
        begin = text.at(given[0].lineno, given[0].col_offset)
        return [(begin, begin, "("), (last, last, f", {new})")]
    while (found := _CLOSES.match(text.data, last)) and found.end() < end:
        last = found.end()  # parentheses around the argument
    return [(last, last, f", {new}")]


def _off(call: ast.Call, text: _Text) -> Change | None:
    first = call.args[0] if call.args else None
    if not isinstance(first, ast.Constant) or first.value is not True:
        return None
    return text.at(first.lineno, first.col_offset), text.end(first), "False"


def _called(code: str) -> str:
    """The function that the last of these statements calls; nothing where it calls none, or is no Python."""
    try:
        last = ast.parse(code).body[-1]
    except SyntaxError:
        return ""
    while isinstance(last, ast.If):
        last = last.body[-1]
    return _last_name(last.value.func) if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) else ""


def _imports(tree: ast.Module, above: int | None = None) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports at the top level, above a line."""
    found = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return [node for node in found if above is None or node.lineno < above]


def _modules(imports: Iterable[ast.Import | ast.ImportFrom]) -> set[str]:
    """Modules that are imported under a name of their own."""
    return {alias.asname or alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}


def _statement(tree: ast.Module, edit: AddStatement, text: _Text, above: int | None = None) -> list[Change]:
    """Behind the imports at the top; nothing where the file does not import what the statement needs."""
    imports = _imports(tree, above)
    at = _behind(imports, tree, text)
    if edit.needs not in _modules(imports) or at is None:
        return []
    return [(at, at, f"\n\n{edit.code}")]


def _behind(imports: Sequence[ast.stmt], tree: ast.Module, text: _Text) -> int | None:
    """The end of the last one's line; None where another statement begins there."""
    if not imports or any(each.lineno == imports[-1].end_lineno for each in tree.body if each is not imports[-1]):
        return None
    return text.line_end(text.end(imports[-1]))


def _before_training(tree: ast.Module, edit: BeforeTraining, text: _Text) -> list[Change]:
    """Change in front of the first statement that makes an optimizer of `NAME.parameters()`, or a trainer of `NAME`,
    and has a line of its own; nothing where there is none."""
    made, others = _imported(tree, "optim"), _no_models(tree)
    # what has its .step() called with nothing given to it: an average of weights is given these
    steps = [call.func for call in _calls(tree, ["step"]) if not call.args and not call.keywords]
    stepped = {_last_name(each.value) for each in steps if isinstance(each, ast.Attribute)}
    trainers = {name for name in _imported(tree, "transformers", "trl") if name.endswith("Trainer")}
    statements = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr))]
    for node in sorted(statements, key=lambda node: (node.lineno, node.col_offset)):
        model = _trained(node, trainers, others) or (
            "" if isinstance(node, ast.Expr) else _optimized(node, made, stepped)
        )
        code = edit.code.replace("{model}", model)
        if not model or _beginning(node, text)[1].strip():
            continue
        at, indent = _beginning(_above_branches(tree, node, model, text), text)
        outermost = max(each.lineno for each in tree.body if each.lineno <= node.lineno)
        helper = _helper(tree, edit.helper, bool(trainers), text, outermost)
        if code.splitlines()[-1] in text.data.decode() or helper is None:
            return []
        return [*helper, (at, at, "".join(f"{each}\n{indent}" for each in code.splitlines()))]
    return []


def _beginning(node: ast.stmt, text: _Text) -> tuple[int, str]:
    """Return where a statement begins, and what stands before it in its line."""
    at, line = text.at(node.lineno, node.col_offset), text.at(node.lineno, 0)
    return at, text.data[line:at].decode()


def _above_branches(tree: ast.Module, node: ast.stmt, model: str, text: _Text) -> ast.stmt:
    """The outermost `if` that a statement stands in, which may never be entered, if the model is made above it in the
    same function; else the statement itself."""
    parents = {child: each for each in ast.walk(tree) for child in ast.iter_child_nodes(each)}

    def scope(of: ast.AST) -> ast.AST:
        while of in parents and not isinstance(of, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            of = parents[of]
        return of

    inside = scope(node)
    stored = [each for each in ast.walk(inside) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    made = [each.lineno for each in stored if each.id == model and scope(each) is inside]
    made += [each.lineno for each in ast.walk(inside) if isinstance(each, ast.arg) and each.arg == model]
    found, above = node, parents.get(node)
    while isinstance(above, ast.If):
        begins, _ = _beginning(above, text)
        if any(line < above.lineno for line in made) and text.data[begins : begins + 2] == b"if":  # no elif
            found = above
        above = parents.get(above)
    return found


def _helper(tree: ast.Module, code: str, bare: bool, text: _Text, above: int) -> list[Change] | None:
    """Return the changes that put what the statements need behind the imports above them; none where it is there
    already, None where it cannot be put there. A script that is `bare` may do without torch's import, as a trainer's
    does."""
    imports = _imports(tree, above)
    there = {f"import {module}" for module in _modules(imports)}
    code = "\n".join(line for line in code.splitlines() if line not in there)
    if not code:
        return []
    found = _statement(tree, AddStatement(code), text, above)
    at = _behind(imports, tree, text)
    if found or not bare or at is None:
        return found or None
    return [(at, at, f"\n{code}" if code.startswith("import torch") else f"\nimport torch\n\n{code}")]


def _imported(tree: ast.AST, *packages: str) -> set[str]:
    """Names that are imported from a module one of whose parts is so called."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    found = [node for node in nodes if set(packages) & set((node.module or "").split("."))]
    return {alias.asname or alias.name for node in found for alias in node.names}


def _trained(statement: ast.Assign | ast.AnnAssign | ast.Expr, trainers: set[str], others: set[str]) -> str:
    """The name of the model that the statement gives a trainer, by keyword or first; none of the `others`."""
    for call in _calls(statement, trainers):
        given = [keyword.value for keyword in call.keywords if keyword.arg == "model"] or call.args[:1]
        if given and isinstance(given[0], ast.Name) and given[0].id not in others:
            return given[0].id
    return ""


def _no_models(tree: ast.AST) -> set[str]:
    """Names of functions, and of what is a text or a configuration: trainers take such in place of a model."""
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            plain = isinstance(node.value, (ast.Constant, ast.JoinedStr, ast.Subscript))
            made = isinstance(node.value, ast.Call) and re.search(r"(Config|Arguments)\b", ast.unparse(node.value.func))
            parsed = isinstance(node.value, ast.Attribute)
            found |= {_last_name(target) for target in node.targets} if plain or made or parsed else set()
    return found


def _optimized(statement: ast.Assign | ast.AnnAssign, made: set[str], stepped: set[str]) -> str:
    """The name whose parameters() the assignment gives an optimizer first: one of `made`, something of an `optim`, what
    is called an optimizer, or what is `stepped`. Whatever else takes parameters (clipping, counting) makes none."""
    call, targets = statement.value, statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    first = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if not (isinstance(call, ast.Call) and isinstance(first, ast.Call) and isinstance(first.func, ast.Attribute)):
        return ""
    if first.func.attr != "parameters" or not isinstance(first.func.value, ast.Name):
        return ""
    *places, name = ast.unparse(call.func).split(".")
    named = "optim" in places or name in made or name.lower().endswith("optimizer")
    return first.func.value.id if named or stepped & set(map(_last_name, targets)) else ""
