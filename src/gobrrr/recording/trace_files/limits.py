"""How much of a stranger's file do we read before we say no?"""

from __future__ import annotations

from dataclasses import dataclass, fields

from gobrrr.errors import TraceError
from gobrrr.units import size


@dataclass(frozen=True)
class Limits:
    """Bounds on one file. Each is lifted by the flag of its name: `file_bytes` by `--max-file-bytes`.

    The defaults are an order above the largest traces that people report (some GB unpacked, some ten million events),
    and keep a hostile file's cost to minutes and to the memory that its events need as columns, 150 bytes each.
    """

    file_bytes: int = 4 << 30
    """Size on disk."""
    unpacked_bytes: int = 16 << 30
    """Size once decompressed."""
    ratio: int = 400
    """Decompressed to compressed; real traces reach 10 to 60, a bomb 1000. Held against files above RATIO_FLOOR."""
    events: int = 50_000_000
    depth: int = 64
    """Nesting of arrays and objects; real events reach 4."""
    value_bytes: int = 64 << 20
    """One event, one string, or everything before the first event."""
    journal_frame_bytes: int = 256 << 20
    """One frame of a journal."""


DEFAULT = Limits()
RATIO_FLOOR = 1 << 20
"""Below this many unpacked bytes no ratio does harm."""


def flag(limit: str) -> str:
    """The command line's flag that sets a limit: `file_bytes` -> `--max-file-bytes`."""
    return "--max-" + limit.replace("_", "-")


def exceeded(source: str, limit: str, bound: int, value: int | None = None, place: str = "") -> TraceError:
    """The error for a limit that does not hold; `value` where it is known, `place` such as 'at byte 123'."""
    assert limit in {f.name for f in fields(Limits)}, limit
    shown = size if limit.endswith("bytes") else str
    what = f"{shown(value)} is over" if value is not None else "it goes over"
    where = f" {place}" if place else ""
    return TraceError(
        f"{source}{where}: {what} the limit of {shown(bound)} on {limit.replace('_', ' ')}", f"{flag(limit)} lifts it"
    )
