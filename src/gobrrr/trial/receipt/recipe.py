"""The remedies that were kept, as TOML that a person can read and `gobrrr run --recipe` applies. Data, never code."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.system import files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = "gobrrr.recipe/1"
MAX_BYTES = 64 << 10  # of a recipe's file; proposed: far above any that tune writes; the largest one written
MAX_LINE = 1024
"""Characters. The reader of TOML takes time with the square of a dotted key: a second for a whole file of such."""
MAX_REMEDIES = 64  # of one recipe; proposed: far above any that tune keeps; the number of remedies there are
HINT = "gobrrr tune writes a recipe.toml; `gobrrr remedies` lists what may stand in one"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}(\.[a-z][a-z0-9_]{0,63})?")
_WORD = re.compile(r"[A-Za-z0-9_-]+")

Option = str | int | float | bool


class Ingredient(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One remedy: its name and options, and what it brought when it was measured."""

    name: str
    options: dict[str, Option] = {}
    speedup: tuple[float, float, float] | None = None
    """Median, low, high of leaving it out."""
    guard: str = "unverified"
    memory: tuple[float, float, float] | None = None
    """The same of the peak of memory, where that was the objective."""
    energy: tuple[float, float, float] | None = None
    """And of the energy of a step."""


class Fits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Setup that the recipe was validated on; an empty string is not compared."""

    torch: str = ""
    python: str = ""
    machine: str = ""
    fingerprint: str = ""
    script_sha256: str = ""
    model: str = ""
    """Hash of the names, shapes and dtypes of the models' parameters."""


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The recipe of one program on one machine."""

    schema: str
    program: str = ""
    date: str = ""
    gobrrr: str = ""
    objective: str | None = None
    """Objective that it was chosen for, where that is not time."""
    speedup: tuple[float, float, float] | None = None
    memory: tuple[float, float, float] | None = None
    """The peak of memory as written over that with the recipe, where that was the objective."""
    energy: tuple[float, float, float] | None = None
    guard: str = "unverified"
    fits: Fits = Fits()
    remedies: tuple[Ingredient, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The remedies' names, in their order."""
        return tuple(ingredient.name for ingredient in self.remedies)

    @property
    def options(self) -> dict[str, dict[str, int]]:
        """Return the options of each remedy that are whole numbers, where it has some: no remedy takes others."""
        found = {each.name: {k: v for k, v in each.options.items() if type(v) is int} for each in self.remedies}
        return {name: options for name, options in found.items() if options}


def to_toml(recipe: Recipe) -> str:
    """The recipe as TOML."""
    head = msgspec.to_builtins(recipe)
    fits, remedies = head.pop("fits"), head.pop("remedies")
    parts = [_table("", head), _table("[fits]", fits)]
    for remedy in remedies:
        options = remedy.pop("options")
        parts.append(_table("[[remedies]]", remedy))
        if options:
            parts.append(_table("[remedies.options]", options))
    return "\n".join(parts)


def _table(title: str, values: dict[str, Any]) -> str:
    rows = [f"{_key(name)} = {_value(value)}" for name, value in values.items() if value is not None]
    return "\n".join([*([title] if title else []), *rows]) + "\n"


def _key(name: str) -> str:
    return name if _WORD.fullmatch(name) else _value(name)


def _value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in value)}]"
    # A JSON string is a TOML string once DEL, which JSON leaves as it is, is escaped; so are numbers and booleans.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read(file: Path, known: frozenset[str] | None = None) -> Recipe:
    """Read and check it. `known`: the remedies that there are. Raises GobrrrError that names what is wrong."""
    try:
        data = files.read(file, MAX_BYTES)
        if len(data) > MAX_BYTES:
            raise GobrrrError(f"{file} is too large for a recipe", HINT)
        text = data.decode("utf-8")
    except OSError as error:
        raise GobrrrError(f"cannot read the recipe {file}: {error.strerror}", HINT) from None
    except UnicodeDecodeError:
        raise GobrrrError(f"{file} is no recipe: it is not text", HINT) from None
    return parse(text, str(file), known)


def parse(text: str, source: str, known: frozenset[str] | None = None) -> Recipe:
    """A recipe from its text; see `read`."""
    if max(map(len, text.splitlines()), default=0) > MAX_LINE:
        raise GobrrrError(f"{source} is no recipe: it has a line of more than {MAX_LINE} characters", HINT)
    try:
        recipe = msgspec.convert(tomllib.loads(text), Recipe)
    except (ValueError, msgspec.ValidationError, RecursionError) as error:  # a number of too many digits, say
        raise GobrrrError(f"{source} is no recipe: {error}", HINT) from None
    if recipe.schema != SCHEMA:
        raise GobrrrError(
            f"{source} has the schema {recipe.schema!r}, not {SCHEMA}", "tune the program again with this gobrrr"
        )
    _check_remedies(recipe, source, known)
    return recipe


def _check_remedies(recipe: Recipe, source: str, known: frozenset[str] | None) -> None:
    if len(recipe.remedies) > MAX_REMEDIES:
        raise GobrrrError(f"{source} names {len(recipe.remedies)} remedies: more than there are", HINT)
    for number, name in enumerate(recipe.names):
        if not _NAME.fullmatch(name):
            raise GobrrrError(f"{source}: {name[:80]!r} is no name of a remedy", HINT)
        if known is not None and name not in known:
            raise GobrrrError(f"{source} names the remedy {name}, which is not known here", HINT)
        if name in recipe.names[:number]:
            raise GobrrrError(f"{source} names the remedy {name} twice", "leave one of them out")


def misfits(recipe: Recipe, here: Fits) -> list[str]:
    """Return what differs between where the recipe was validated and here, one sentence each; empty where it fits."""
    labels = {"torch": "torch", "python": "Python", "fingerprint": "the machine", "script_sha256": "the script",
              "model": "the model"}  # fmt: skip
    found = []
    for name, label in labels.items():
        then, now = getattr(recipe.fits, name), getattr(here, name)
        if then and now and then != now:
            shown = f" ({then} then, {now} now)" if name in ("torch", "python") else ""
            found.append(f"{label} is not the one it was measured with{shown}: the speed-up was not re-validated here")
    return found
