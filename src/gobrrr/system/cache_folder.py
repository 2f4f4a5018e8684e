"""The user's cache folder: what was found out about this computer. Believed only where nobody else can have written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gobrrr.system import files


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """$GOBRRR_CACHE, or gobrrr/ in $XDG_CACHE_HOME or ~/.cache."""
    if environ.get("GOBRRR_CACHE"):
        return Path(environ["GOBRRR_CACHE"])
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()) / "gobrrr"


def read(path: Path, most: int, private: bool = False) -> bytes:
    """At most `most` + 1 bytes. Raises FileNotFoundError, and OSError for a link and for what others may write, or
    where it is `private` read."""
    if path.parent.exists():
        _check_folder(path.parent)
    with files.opened(path, follow=False) as file:
        files.check_owner(os.fstat(file.fileno()), path, private)
        return file.read(most + 1)


def write(path: Path, data: bytes) -> None:
    """Whole, 0600, in a folder that is made 0700. Raises OSError, also for a folder that others may write into."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(path.parent)
    files.write(path, data)


def _check_folder(folder: Path) -> None:
    """The folder, and the link that leads to it where it is one: people move their caches to larger disks."""
    facts = folder.lstat()
    if folder.is_symlink() and hasattr(os, "getuid") and facts.st_uid != os.getuid():
        raise PermissionError(1, "it is a link that another user has made", str(folder))
    files.check_owner(folder.stat(), folder)
