"""`python -m gobrrr.machine.measure.command`: measure this machine here, print the Machine as JSON.

It runs in the interpreter that has torch, which need not be the one that gobrrr is installed in: so it needs the
standard library and torch alone. Progress goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

OLDEST = (2, 6)
SCHEMA = "gobrrr.machine/1"  # as in machine.model, which needs a package that this interpreter may lack
TORCH_MISSING = 66
"""Exit code that says: no torch here, or one that is too old."""
SHORT_WAIT = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
"""How long a thread of a team waits for the others before it gives its core away, unless the user has set it.

libgomp's default is 300,000 turns, 18 ms on a Xeon whose pause takes 140 cycles: when other work makes two threads
share a core, each parallel op then takes a scheduler's slice (8 ms measured, for a copy of 20 us). 1,000 turns bridge
the gap between two ops in a row, which is all that a ceiling needs."""


def torch_version() -> str | None:
    """The version of this interpreter's torch, read without importing it (a second); None without one."""
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def is_too_old(version: str) -> bool:
    """Say whether a version is older than gobrrr works with; one that cannot be read is not."""
    parts = version.split(".")[:2]
    return len(parts) == 2 and all(part.isdigit() for part in parts) and tuple(map(int, parts)) < OLDEST


def main(arguments: list[str] | None = None) -> int:
    """Print the Machine's JSON and return 0, or say on stderr why not. Arguments: the time in seconds, and the
    keys of the figures to measure, with commas between; all where there is none."""
    arguments = sys.argv[1:] if arguments is None else arguments
    version = torch_version()
    if version is None or is_too_old(version):
        print("torch is missing" if version is None else f"torch {version} is too old", file=sys.stderr)
        return TORCH_MISSING
    from gobrrr.machine.probe.fingerprint import fingerprint
    from gobrrr.machine.probe.system_probe import probe

    begin = time.perf_counter()
    hardware = probe()
    mark = fingerprint(hardware, version)
    for name, value in SHORT_WAIT.items():
        os.environ.setdefault(name, value)  # read once, as torch is imported
    import torch

    from gobrrr.machine.measure.ceilings import SECONDS, measure

    seconds = float(arguments[0]) if arguments else max(SECONDS / 2, SECONDS - (time.perf_counter() - begin))
    only = arguments[1].split(",") if len(arguments) > 1 else ()
    found = measure(torch, hardware, seconds, notify=lambda text: print(text, file=sys.stderr, flush=True), only=only)
    print(json.dumps({"schema": SCHEMA, "fingerprint": mark, **found}))
    return 0


if __name__ == "__main__":
    # started as a file's path or with -m, the folder of this file must not shadow top-level modules
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    sys.exit(main())
