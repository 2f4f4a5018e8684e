"""Remedies that this machine and torch build cannot apply, asked in the program's own interpreter.

python -m gobrrr.remedies.mechanism.probing NAME ...      prints {"name": "why not", ...}
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import gobrrr

TIMEOUT_S = 120  # s to import torch and ask. proposed: a cold import on a slow disk; timings of such would settle it
_START = (
    "import sys; sys.path[:] = [p for p in sys.path if p] + [sys.argv.pop(1)]; "  # not what lies in the current folder
    "from gobrrr.remedies.mechanism.probing import main; main(sys.argv[1:])"
)


def main(names: Sequence[str]) -> None:
    """Print why each of these cannot be applied; those that can are left out."""
    from gobrrr.remedies import registry

    found = {name: why for name in names if (why := registry.remedy(name).probe())}
    print(json.dumps(found))


def unable(names: Sequence[str], interpreter: str = sys.executable, seconds: float = TIMEOUT_S) -> dict[str, str]:
    """Remedy -> why it cannot be applied there. Empty where the interpreter does not answer in so many seconds: the
    trials will say it."""
    place = str(Path(gobrrr.__file__).parent.parent)
    try:
        done = subprocess.run(
            [interpreter, "-c", _START, place, *names], capture_output=True, text=True,
            timeout=min(TIMEOUT_S, seconds), check=True,
        )  # fmt: skip
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return {str(name): str(why) for name, why in found.items()}


if __name__ == "__main__":
    main(sys.argv[1:])
