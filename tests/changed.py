"""Print the test files that import a module that changed: python -m tests.changed [REVISION].

Changed means since REVISION (HEAD where it is not said), or not known to git yet. `make test-changed` runs them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def changed(revision: str) -> list[Path]:
    """Return the files that exist and differ from `revision`. Raises CalledProcessError where git knows no such."""
    asks = (["diff", "--name-only", revision], ["ls-files", "--others", "--exclude-standard"])
    told = [subprocess.run(["git", *ask], capture_output=True, text=True, check=True).stdout for ask in asks]
    return [path for name in "".join(told).split("\n") if name and (path := Path(name)).is_file()]


def tests_of(files: list[Path], tests: list[Path]) -> list[Path]:
    """Return the tests among `files`, and those of `tests` whose imports name a module of `files`."""
    modules = [
        tuple(part for part in path.with_suffix("").parts if part not in ("src", "lab", "__init__"))
        for path in files
        if path.suffix == ".py"
    ]
    named = [
        rf"{re.escape('.'.join(parts))}\b|from {re.escape('.'.join(parts[:-1]))} import (\([^)]*|[^\n]*)\b{parts[-1]}\b"
        for parts in modules
    ]
    pattern = re.compile("|".join(named) if named else r"(?!)")
    return [test for test in tests if test in files or pattern.search(test.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    found = tests_of(changed(*sys.argv[1:] or ["HEAD"]), sorted(Path("tests").rglob("test_*.py")))
    print("\n".join(map(str, found)))
