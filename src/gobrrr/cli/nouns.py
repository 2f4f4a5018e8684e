"""Which noun a file holds: by the schema that it names, whatever its own name is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gobrrr.machine import files

if TYPE_CHECKING:
    from gobrrr.trial.receipt import Receipt


class _Named(msgspec.Struct):
    schema: str = ""


def other(file: Path) -> Receipt | None:
    """What a file holds that is no report: the receipt of a tuning. None where it does not say that it is such a
    thing. Raises GobrrrError for a receipt that is not whole."""
    from gobrrr.trial import receipt

    return receipt.read(file) if _schema(file).startswith("gobrrr.receipt/") else None


def _schema(file: Path) -> str:
    """What it calls itself; empty where it cannot be read."""
    from gobrrr.trial.receipt import MAX_BYTES

    try:
        return msgspec.json.decode(files.read(file, MAX_BYTES), type=_Named).schema
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
