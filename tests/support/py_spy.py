"""Programs that stand for py-spy: one writes what it once recorded, one refuses, one does not end."""

from __future__ import annotations

import shlex
from pathlib import Path

RECORDED = Path(__file__).parents[1] / "recording" / "py_spy"
"""Files of py-spy 0.4.3, of a program whose loader's worker computes samples in Python; pids 4100 and 4107."""


def writing(path: Path, name: str) -> Path:
    """Write the recorded file as that of the process it was called for, once it is ended as by Ctrl-C."""
    file = shlex.quote(str(RECORDED / name))
    return _script(
        path, 'while [ "$1" != --output ]; do [ "$1" = --pid ] && pid=$2; shift; done; out=$2',
        f"trap 'sed \"s/\\b4100\\b/$pid/g\" {file} > \"$out\"; exit 0' INT",
        f"touch {shlex.quote(str(path.parent))}/began", "while :; do sleep 0.05; done",
    )  # fmt: skip


def refusing(path: Path, said: str) -> Path:
    """Say why it cannot, and fail."""
    return _script(path, f"printf '%s\\n' {shlex.quote(said)} >&2", "exit 1")


def hanging(path: Path) -> Path:
    """Hear no Ctrl-C."""
    return _script(path, "trap '' INT", "while :; do sleep 0.05; done")


def _script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path
