"""A setting of the program varied from outside: an argument of its command line, or a number in its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gobrrr.capture.source.statements import last_name
from gobrrr.errors import GobrrrError
from gobrrr.remedies.edits import program
from gobrrr.remedies.edits.source import Source
from gobrrr.remedies.memory.memory import SELECTIVE, CheckpointBlocks
from gobrrr.system.escape import plain
from gobrrr.trial.edit.program_edit import ProgramEdit, own_words

BATCH = ("batch_size", "train_batch_size", "per_device_train_batch_size", "micro_batch_size", "batch", "bs", "bsz",
         "minibatch_size", "mini_batch_size", "n_batch", "batchsize")  # fmt: skip
"""Names under which programs have their batch size; the first that a program has is taken."""
VALUE = "\0"
"""Stands where the value goes: no argument has it."""
CHECKPOINTING = "checkpointing"
"""Setting that every training has: how much of the model is computed again in backward."""
NOT_TRAINING = re.compile(r"(?:^|_)(?:eval|test|val|valid|validation|dev|predict)(?:_|$)", re.IGNORECASE)
"""Names of settings that are not training's."""


class Place(NamedTuple):
    """A number or text in the source that gives the setting its value."""

    source: Source
    node: ast.Constant


class Setting(NamedTuple):
    """A setting that can be varied. `now`: its value, empty where it is the program's default; `where`: for people."""

    name: str
    now: str
    where: str
    words: tuple[str, ...] = ()
    """The program's arguments, with VALUE where the value goes; empty where it stands in the source."""
    places: tuple[Place, ...] = ()
    made: Callable[[str], dict[str, tuple[str, str]]] | None = None
    """Gives the files' texts, before and after, for a value."""

    def edit(self, value: str, folder: Path) -> ProgramEdit:
        """Return the edit that gives the setting a value."""
        title = f"{self.name.lstrip('-')}={value}"
        if self.words:
            return ProgramEdit(title, args=tuple(word.replace(VALUE, value) for word in self.words))
        texts = self.made(value) if self.made is not None else {}
        for source in dict.fromkeys(place.source for place in self.places):
            mine = [place.node for place in self.places if place.source is source]
            new = {node: repr(value) if isinstance(node.value, str) else value for node in mine}
            after = source.with_changes(source.replacing(node, text) for node, text in new.items())
            texts[source.file.relative_to(folder.resolve()).as_posix()] = source.text, after
        return ProgramEdit(title, {name: text.encode() for name, (_, text) in texts.items()}, diff=program.diff(texts))


def find(name: str, command: Sequence[str], folder: Path) -> Setting:
    """Return the setting of this name; for "batch" under any of its usual names. Looked for in the command line, then
    among the options that the program defines, then in its source. Raises GobrrrError where it is not found, or means
    several things."""
    if _plain(name) == CHECKPOINTING:
        return _checkpointing(command, folder)
    names = BATCH if name in ("batch", "batch_size") else (_plain(name),)
    sources = program.read(program.files_of(command, folder))
    begin = own_words(command)
    words = list(command[begin:]) if begin is not None else []
    looks: tuple[Callable[[str], Setting | None], ...] = (
        lambda known: _in_words(known, words), lambda known: _defined(known, words, sources),
        lambda known: _in_source(known, sources),
    )  # fmt: skip
    for look in looks:
        for known in names:
            if (found := look(known)) is not None:
                return found
    hint = "name its option or variable: --vary NAME=1,2,4"
    raise GobrrrError(f"no {plain(name)} was found in the command line or the program's source", hint)


def _checkpointing(command: Sequence[str], folder: Path) -> Setting:
    """How much of the model is computed again in backward: nothing, a share of the blocks that repeat, or all."""
    sources = program.read(program.files_of(command, folder))

    def made(value: str) -> dict[str, tuple[str, str]]:
        amount = {"none": "0", "all": "1"}.get(value, value)
        if amount != SELECTIVE and not re.fullmatch(r"0|1|0?\.\d+", amount):
            raise GobrrrError(f"{CHECKPOINTING} cannot be {plain(value)}", "none, selective, 0.5 of the blocks, or all")
        texts = program.texts(sources, [CheckpointBlocks(amount)], folder) if amount != "0" else {}
        if amount != "0" and not texts:
            raise GobrrrError("no statement that makes an optimizer or trainer was found", "edit the program by hand")
        return texts

    made("all")
    return Setting(CHECKPOINTING, "none", "torch.utils.checkpoint around blocks that repeat", made=made)


def is_batch(name: str) -> bool:
    """Whether a setting of this name is a batch size."""
    return _plain(name) in BATCH


def _plain(name: str) -> str:
    return name.strip().lstrip("-").replace("-", "_").lower()


def _in_words(name: str, words: list[str]) -> Setting | None:
    """`--batch-size 8`, `--batch-size=8`, `batch_size=8`, `model.batch_size=8`."""
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if _plain(option.rpartition(".")[2]) != name:
            continue
        if equals:
            return Setting(option, value, f"{option} in the command line", _with(words, at, f"{option}={VALUE}"))
        if word.startswith("-") and at + 1 < len(words):
            return Setting(word, words[at + 1], f"{word} in the command line", _with(words, at + 1, VALUE))
    return None


def _with(words: list[str], at: int, word: str) -> tuple[str, ...]:
    return (*words[:at], word, *words[at + 1 :])


def _defined(name: str, words: list[str], sources: Sequence[Source]) -> Setting | None:
    """An option that the program defines (argparse, click) and the command line leaves at its default."""
    for source in sources:
        for node in source.nodes(ast.Call):
            options = [
                each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            option = next((each for each in options if each.startswith("--") and _plain(each) == name), None)
            if last_name(node.func) in ("add_argument", "option") and option is not None:
                default = next((word.value for word in node.keywords if word.arg == "default"), None)
                now = str(default.value) if isinstance(default, ast.Constant) else ""
                return Setting(option, now, f"{option} of {source.file.name}:{node.lineno}", (*words, option, VALUE))
    return None


def _in_source(name: str, sources: Sequence[Source]) -> Setting | None:
    """Numbers that the source gives to this name: assigned, passed as a keyword, a default, a key of a dict."""
    places = [
        Place(source, value)
        for source in sources
        for target, value in _given(source)
        if _plain(target) == name and isinstance(value, ast.Constant) and type(value.value) in (int, float, str)
        and not _for_evaluation(source, value)
    ]  # fmt: skip
    told = {f"{place.source.file.name}:{place.node.lineno}": str(place.node.value) for place in places}
    if len(set(told.values())) > 1:
        raise GobrrrError(
            f"{name} has several values: {', '.join(f'{value} at {where}' for where, value in told.items())}",
            "give them names of their own, or read one from an option",
        )
    return Setting(name, next(iter(told.values())), ", ".join(told), places=tuple(places)) if places else None


def _for_evaluation(source: Source, value: ast.expr) -> bool:
    """Whether the statement around a value names an evaluation: test_loader = DataLoader(..., batch_size=64)."""
    statement = source.statement(value)
    head = source.data[source.span(statement)[0] : source.span(value)[0]].decode(errors="replace").partition("=")[0]
    return any(NOT_TRAINING.search(word) for word in re.findall(r"[A-Za-z_]\w*", head))


def _given(source: Source) -> Iterator[tuple[str, ast.expr]]:
    """(name, expression) of everything that the source gives a name."""
    for assigned in source.nodes(ast.Assign):
        for target in assigned.targets:
            pairs: list[tuple[ast.expr, ast.expr]] = [(target, assigned.value)]
            if isinstance(target, ast.Tuple) and isinstance(assigned.value, ast.Tuple):
                pairs = list(zip(target.elts, assigned.value.elts, strict=False))
            yield from ((last_name(each), value) for each, value in pairs)
    for typed in source.nodes(ast.AnnAssign):
        if typed.value is not None:
            yield last_name(typed.target), typed.value
    yield from ((word.arg or "", word.value) for word in source.nodes(ast.keyword))
    for given in source.nodes(ast.arguments):
        every = [*given.posonlyargs, *given.args]
        yield from ((arg.arg, value) for arg, value in zip(every[::-1], given.defaults[::-1], strict=False))
        yield from ((arg.arg, value) for arg, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value)
    for table in source.nodes(ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
