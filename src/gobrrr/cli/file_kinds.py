"""Which noun a file holds: by the schema that it names, whatever its own name is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.system import files

if TYPE_CHECKING:
    from gobrrr.trial.receipt.receipt import Receipt


def other(file: Path) -> Receipt | None:
    """Read a file that is no report as the receipt of a tuning. None where the file does not say that it is one.
    Raises GobrrrError for a receipt that is not whole."""
    from gobrrr.trial.receipt import receipt

    return receipt.read(file) if _schema(file).startswith("gobrrr.receipt/") else None


def _schema(file: Path) -> str:
    """Return the schema that the file names; empty where it cannot be read."""
    import msgspec

    from gobrrr.trial.receipt.receipt import MAX_BYTES

    try:
        fields = msgspec.json.decode(files.read(file, MAX_BYTES), type=dict[str, msgspec.Raw])
        return msgspec.json.decode(fields["schema"], type=str)
    except (OSError, KeyError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
