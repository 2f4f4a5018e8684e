"""The table of slow idioms: one TOML file for each, with what is seen of it, what to write instead, and a pair."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.rules.model.finding import BOUNDS
from gobrrr.rules.model.lines import Functions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CODE = "BRR320"
FOLDER = Path(__file__).parent
MARK = re.compile(r"\s*# (ill|well|seen)$")
"""End of a pair's line: in the slow program alone, in the mended one alone, or where a report names it."""


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signs of it at a line of the user's. Its time is that of `ops` and `functions` together; of the whole line, where
    neither is given. What is said of the source must hold as well."""

    ops: tuple[str, ...] = ()
    """Names of torch's ops, or of ops around those that count."""
    functions: tuple[str, ...] = ()
    """Beginnings of the dotted names of library functions below the line."""
    source: str = ""
    """Regular expression that the statement has, as ast.unparse writes it."""
    around: str = ""
    """The same of a statement around it in its function: a loop's or a `with`'s first line. `{name}` stands for what
    the group of that name matched in `source`."""
    made: str = ""
    """The same of the whole file, where `^` begins a line: how an object was made, say."""
    kinds: tuple[str, ...] = ()
    """Kinds of steps that count: training, inference; all where none is named."""
    grows: bool = False
    """Whether its time grows with every step, so that what the step's drift adds counts too."""
    phases: tuple[str, ...] = ()
    """data, forward, loss, backward, optimizer, other: phases that count; all where none is named."""
    dtypes: tuple[str, ...] = ()
    """First dtype of `ops`, as the profiler writes it; any where none is named."""
    calls: float = 0.0
    """Calls of `ops` themselves per step, at least; what they call is not counted."""
    swells: float = 0.0
    """Elements that a product of `ops` makes over those of its larger factor, at least."""
    cpu: bool = False
    """Whether it is slow where a CPU computes alone."""
    aspect: float = 0.0
    """Last two dimensions of the first tensor of `ops`, the larger over the smaller, at least."""
    factor: float = 0.0
    """Time of `ops` over their least time, at least."""
    lines: int = 1
    """Lines that show it, at least."""
    inside: bool = False
    """Whether what the line calls of the user's own code counts too."""


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program that is slow by it, and its mended twin. Lines that end with `# ill` are the slow one's alone, with
    `# well` the twin's; a report names the first `# seen`, else the first `# ill`."""

    program: str
    times: float
    """Time of the slow program over the twin's, as benchmarks/idioms.py measured it."""
    left: float
    """Share of the slow form's own time that the mended one takes there."""
    needs: tuple[str, ...] = ()
    """Modules that gobrrr itself does not need."""

    def text(self, twin: str) -> str:
        """The program `ill` or `well`."""
        lines = [(line, MARK.search(line)) for line in self.program.splitlines()]
        return "".join(f"{MARK.sub('', line)}\n" for line, mark in lines if not mark or mark[1] in (twin, "seen"))

    @property
    def guilty(self) -> tuple[int, ...]:
        """Lines of the slow program that a report may name."""
        lines = [line for line in self.program.splitlines() if not line.endswith("# well")]
        seen = [number for number, line in enumerate(lines, 1) if line.endswith("# seen")]
        return tuple(seen or (number for number, line in enumerate(lines, 1) if line.endswith("# ill")))

    @property
    def change(self) -> str:
        """The edit as a diff's lines: - what is slow, + what is written instead."""
        signs = {"ill": "-", "well": "+"}
        marked = [(line, MARK.search(line)) for line in self.program.splitlines()]
        return "\n".join(f"{signs[mark[1]]} {MARK.sub('', line)}" for line, mark in marked if mark and mark[1] in signs)


class Rewrite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The edit of a statement, where a regular expression can make it."""

    find: str
    put: str
    """With groups of `find` as \\1 or \\g<name>."""
    imports: str = ""
    """Statement that it needs behind the imports."""


class Play(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Both forms on the tensors of a recorded op, as expressions: its inputs have the names of torch's schema."""

    ops: tuple[str, ...]
    """Ops at the line of which one is called for each time the slow form is."""
    today: str
    then: str
    shapes: str = ""
    """Regular expression of the shapes of the op's inputs, as Python writes them; any where none is given."""


class Idiom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A slow way to write something, and the fast one."""

    bound: str
    says: str
    """What is slow about it: goes behind '12.0 ms (31.0 %) per step: '."""
    advice: str
    """What to write instead, in a sentence."""
    sources: tuple[str, ...]
    """Addresses of the issue or documentation that says so."""
    seen: Seen
    pair: Pair
    play: Play | None = None
    """Where recorded shapes are enough to time both forms; else the pair's ratio says what is saved."""
    rewrite: Rewrite | None = None
    place: str = ""
    """Regular expression of the statement to edit, where that is not the slow one; `{name}` is what this calls."""
    edit: str = ""
    """Edit of gobrrr.remedies.edits that makes it."""
    name: str = ""
    """The file's."""

    @property
    def functions(self) -> tuple[Functions, ...]:
        """Library functions that hold its time."""
        return (Functions(self.seen.functions),) if self.seen.functions else ()


@cache
def idioms() -> tuple[Idiom, ...]:
    """Return all idioms by name. Raises GobrrrError for a file that is none."""
    return tuple(_read(file) for file in sorted(FOLDER.glob("*/*.toml"), key=lambda file: file.stem))


def _read(file: Path) -> Idiom:
    try:
        found = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), Idiom)
        seen, rewrite = found.seen, found.rewrite
        for pattern in (
            seen.source,
            seen.around,
            seen.made,
            found.place,
            rewrite.find if rewrite else "",
            found.play.shapes if found.play else "",
        ):
            re.compile(pattern)
    except (ValueError, re.error) as error:
        raise GobrrrError(f"{file.name} is no idiom: {error}") from error
    if found.bound not in BOUNDS:
        raise GobrrrError(f"{file.name}: there is no bound '{found.bound}'", f"one of {', '.join(BOUNDS)}")
    return msgspec.structs.replace(found, name=file.stem)


def idiom(name: str) -> Idiom | None:
    """Return the idiom of this name; None where there is none."""
    return next((each for each in idioms() if each.name == name), None)


@cache
def slow_ops() -> dict[str, str]:
    """Return what ops are known to be slow at, by their names."""
    text = (FOLDER / "slow_ops.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, str])


def page(found: Idiom) -> str:
    """Return the idiom as Markdown."""
    links = "\n".join(f"- {link}" for link in found.sources)
    return (
        f"# {found.name}\n\nWhat is slow: {found.says}. {found.advice}\n\n"
        f"```diff\n{found.pair.change}\n```\n\n"
        f"The pair of programs with and without it: {found.pair.times:.2f} times as long.\n\n{links}\n"
    )


def listed() -> str:
    """Return all idioms as a Markdown table."""
    rows = (f"| {each.name} | {each.says} | {each.pair.times:.1f} |" for each in idioms())
    return "\n".join(("| idiom | what is slow | times |", "|---|---|--:|", *rows, ""))
