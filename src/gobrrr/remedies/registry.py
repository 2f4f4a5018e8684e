"""Remedies by name; those of third parties come through the entry point `gobrrr.remedies` and are loaded only when they
are named."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import cast

from gobrrr import remedies
from gobrrr.errors import GobrrrError
from gobrrr.remedies.model import PLACES, Remedy

ENTRY_POINT = "gobrrr.remedies"
EDITS = "edits"
"""Folder of the pages of edits."""
Options = Mapping[str, Mapping[str, int]]
"""Options of remedies, by the remedies' names."""
NO_OPTIONS: Options = {}


def pages() -> Mapping[str, Path]:
    """Return the page of each of our own remedies and edits. A remedy's class is in the module beside it that has the
    page's name, or, with others, in the one that has the folder's, as a class or one of its ROWS."""
    return _pages(tuple(remedies.__path__))


def text_of(name: str) -> str:
    """Return the text of such a page; empty where there is none."""
    page = pages().get(name)
    return page.read_text(encoding="utf-8") if page else ""


@cache
def _pages(folders: tuple[str, ...]) -> Mapping[str, Path]:
    return {page.stem: page for folder in folders for page in sorted(Path(folder).glob("*/*.md"))}


def names() -> tuple[str, ...]:
    """Return the names of our own remedies that act on a running program, in order."""
    return tuple(sorted(name for name, page in pages().items() if page.parent.name != EDITS))


def edit_names() -> tuple[str, ...]:
    """Return the names of those that are edits of the source alone, in order."""
    return tuple(sorted(name for name, page in pages().items() if page.parent.name == EDITS))


def remedy(name: str) -> Remedy:
    """The remedy of a name. Raises GobrrrError where there is none."""
    if name in edit_names():
        raise GobrrrError(f"{name} is an edit now, not a remedy that is applied to a running program",
                          f"gobrrr explain {name} shows it; gobrrr prove --patch measures it")  # fmt: skip
    if page := pages().get(name):
        stem = name if page.with_suffix(".py").exists() else page.parent.name
        module = importlib.import_module(f"gobrrr.remedies.{page.parent.name}.{stem}")
        if row := next((row for row in getattr(module, "ROWS", ()) if row.name == name), None):
            return cast("Remedy", row)
        kinds = (each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Remedy))
        return next(kind() for kind in kinds if vars(kind).get("name") == name)
    return _third_party(name)


def _third_party(name: str) -> Remedy:
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINT, name=name):
        found = point.load()
        made = found() if isinstance(found, type) else found
        if not isinstance(made, Remedy):
            raise GobrrrError(f"{point.value} is no remedy", "it must be a gobrrr.remedies.model.Remedy")
        return made
    raise GobrrrError(f"no remedy is called {name}", "gobrrr remedies lists them")


def composed(wanted: Iterable[str]) -> list[Remedy]:
    """Remedies in the order in which they act. Raises GobrrrError for unknown names and for conflicts."""
    found = [remedy(name) for name in dict.fromkeys(wanted)]
    for one, other in combinations(found, 2):
        if other.name in one.conflicts or one.name in other.conflicts:
            raise GobrrrError(f"{one.name} and {other.name} cannot be applied together", "name one of them")
    return sorted(found, key=lambda r: (PLACES.index(r.place), r.name))


def environment(wanted: Iterable[str], options: Options = NO_OPTIONS) -> dict[str, str]:
    """Return all variables that must be set before the process starts; those of options of others than `wanted` are
    none of them. Raises GobrrrError for an option that a remedy does not take."""
    found: dict[str, str] = {}
    for each in composed(wanted):
        given = options.get(each.name, {})
        check_options(each, given)
        found |= each.environment() | {each.variable(name): str(value) for name, value in given.items()}
    return found


def check_options(remedy: Remedy, given: Mapping[str, object], source: str = "") -> None:
    """Raises GobrrrError for one that it does not take, or that is out of its range: files of others hold them."""
    for name, value in given.items():
        if name not in remedy.takes:
            hint = "gobrrr tune writes those that there are"
            raise GobrrrError(f"{source}{remedy.name} takes no option {name!r}", hint)
        least, most = remedy.takes[name]
        if type(value) is not int or not least <= value <= most:
            said = f"{source}{remedy.name}: {name} must be a whole number from {least} to {most}"
            raise GobrrrError(said, "gobrrr tune writes one that was measured")
