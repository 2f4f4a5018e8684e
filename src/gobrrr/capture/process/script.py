"""Is a file something that Python would run? Asked before anything is started, and only of what can be read twice."""

from __future__ import annotations

import importlib.util
import stat
import warnings
import zipfile
from pathlib import Path

from gobrrr.errors import GobrrrError


def check(script: Path) -> None:
    """Raises GobrrrError for a script that is not there or is not Python; a pipe's content is left to the program."""
    try:
        mode = script.stat().st_mode
    except OSError as error:
        if script.exists():
            raise _unreadable(script, error) from None
        raise GobrrrError(
            f"no such script: {script}", "for a module say -m, for another command put -- before it"
        ) from None
    if stat.S_ISDIR(mode) and not any(script.glob("__main__.*")):
        raise GobrrrError(f"{script} is a folder without __main__.py", "name the script in it")
    if stat.S_ISREG(mode):
        try:
            _check_file(script)
        except OSError as error:
            raise _unreadable(script, error) from None


def _check_file(script: Path) -> None:
    """Check a script as Python looks at it: an archive by its end, bytecode by its name or its first two bytes, else
    source."""
    source = script.read_bytes()
    if script.suffix == ".pyc" or source[:2] == importlib.util.MAGIC_NUMBER[:2] or zipfile.is_zipfile(script):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the program's own run tells of them
            compile(source, str(script), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise GobrrrError(
            f"{script} is not Python{f' (line {line})' if line else ''}: {getattr(error, 'msg', error)}",
            "for another command put -- before it",
        ) from None
    except (RecursionError, MemoryError):
        return  # it may still run, or say so itself


def _unreadable(script: Path, error: OSError) -> GobrrrError:
    return GobrrrError(f"cannot read {script}: {error.strerror}", "check its permissions")
