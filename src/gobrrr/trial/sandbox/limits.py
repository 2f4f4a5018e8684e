"""Places that a trial's process may write to, how that is enforced on this machine, and how it is started so."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from gobrrr.system import files
from gobrrr.trial.sandbox import landlock
from gobrrr.trial.sandbox.writes import PROTECTION, PYTHON, REFUSED, SHARED_MEMORY, UNPROTECTED, WRITABLE

STDERR = "stderr"
"""File of an arm's folder."""
TEMPORARY = ("/tmp", "/var/tmp")
INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
CACHES = (
    ("XDG_CACHE_HOME", "~/.cache", ""), ("TRITON_HOME", "~", ".triton"), ("CUDA_CACHE_PATH", "~/.nv/ComputeCache", ""),
    *((name, "", "") for name in (
        "TRITON_CACHE_DIR", INDUCTOR, "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "HF_HOME",
        "HF_DATASETS_CACHE", "HF_HUB_CACHE", "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "PYTHONPYCACHEPREFIX")),
)  # fmt: skip
"""Documented variables of caches, where these are without them, and the part of it that is written to."""


HINT = "let it write below its working directory, allow that folder with --allow-writes DIR, or all with --unprotected"
_DENIED = re.compile(
    r"Permission denied|Read-only file system|cross-device link|Errno (13|18|30)\b"
    r"|readonly database|unable to open database"
)
_LAST_LINES = 30
"""Lines of stderr in which the reason why a program ended is looked for."""
_READ_BYTES, _MOST_BYTES = 64 << 10, 4 << 20
"""Bytes read of the end of stderr; and bytes it may grow to before the rest is cut off."""


class Limits(NamedTuple):
    """Places the user allows beside the default; folder for caches that do not exist yet (default: in the arm's)."""

    allowed: tuple[Path, ...] = ()
    unprotected: bool = False
    caches: Path | None = None


AT_HOME = Limits()


class Start(NamedTuple):
    """How to start an arm's program. `scratch`: its own folder for temporary files, to be removed when it is over."""

    command: list[str]
    env: dict[str, str]
    scratch: Path | None


def protection(source: Path, limits: Limits) -> str:
    """Return the means that keep an arm from writing elsewhere: one of landlock.py's, PYTHON or UNPROTECTED."""
    if limits.unprotected:
        return UNPROTECTED
    if source.resolve().is_relative_to(SHARED_MEMORY):
        return PYTHON  # which every program must be able to write to
    return landlock.means() or PYTHON


def told(source: Path, limits: Limits) -> str:
    """The protection on this machine, in a sentence."""
    found = protection(source, limits)
    if found == UNPROTECTED:
        return (
            "trial runs may write outside their copy, as you asked: only Python's own writes into your working "
            "directory are refused"
        )
    if found == PYTHON:
        return (
            "the kernel does not keep trial runs from writing outside their copy: Python's own writes are refused, and "
            "so are other programs (--unprotected allows both)"
        )
    return f"trial runs cannot write outside their copy ({found})"


def start(
    command: Sequence[str], env: Mapping[str, str], folder: Path, source: Path, limits: Limits = AT_HOME,
    edit: Mapping[str, str] = MappingProxyType({}),
) -> Start:  # fmt: skip
    """Return the Start of an arm in `folder`, which exists; `source`: the user's. `edit`: variables that an edit or a
    remedy sets, but for those that are set here: none may open a folder. Leaves WRITABLE, PROTECTION in the folder."""
    found, given = protection(source, limits), dict(env)
    temporary, scratch = _temporary(source, given)
    caches = _caches(limits.caches or folder / "caches", given, source)
    places = (folder, *limits.allowed, *temporary, *caches, SHARED_MEMORY, *landlock.DEVICES)
    names = (os.path.realpath(str(place)) for place in places)
    (folder / WRITABLE).write_bytes(b"\0".join(os.fsencode(name) for name in dict.fromkeys(names)))
    (folder / PROTECTION).write_text(found, encoding="utf-8")
    given |= {name: value for name, value in edit.items() if given.get(name) == env.get(name)}
    if found in (PYTHON, UNPROTECTED):
        return Start(list(command), given, scratch)
    return Start(landlock.confined(command, found, str((folder / WRITABLE).resolve())), given, scratch)


def refusal(folder: Path) -> str:
    """Why a program that failed in this folder was kept from writing, as far as can be told; else nothing."""
    last = "\n".join(last_lines(folder, _LAST_LINES))
    paths = _read(folder / REFUSED).splitlines()
    for path in paths:
        if path in last:
            return f"it writes to {path}, which a trial must not change"
    if paths:
        return f"it was kept from writing to {paths[0]}, which a trial must not change"
    if _DENIED.search(last) and _read(folder / PROTECTION) in (landlock.LANDLOCK, landlock.MOUNTS):
        return (
            "most likely it writes outside its own copy of the working directory, or over a file of more than 1 MiB "
            "in it, which a trial must not change"
        )
    return ""


_OF_A_RANK = re.compile(r"\[rank\d+\]: (.*)")
"""A line of a traceback, as torch.distributed writes it."""


def last_lines(folder: Path, count: int) -> list[str]:
    """Return the last lines of a program's stderr; none where its stderr is no file of this folder."""
    return _end(folder / STDERR).decode(errors="replace").strip().splitlines()[-count:]


def last_words(folder: Path) -> str:
    """Return the error of a failed program's last traceback, whose message may have lines of its own after that; else
    the last line that it wrote to stderr; at most 200 characters."""
    lines = last_lines(folder, _READ_BYTES)
    of_ranks = [found[1] for line in lines if (found := _OF_A_RANK.match(line))]
    if any(line.startswith("Traceback (") for line in of_ranks):  # behind it torchrun says that a child has failed
        lines = of_ranks
    begins = [number for number, line in enumerate(lines) if line.startswith("Traceback (")]
    errors = [line for line in lines[begins[-1] + 1 :] if line and not line[0].isspace()] if begins else []
    return (errors or lines[-1:] or [""])[0].strip()[:200]


def shorten(folder: Path) -> None:
    """Keep of a large stderr the end, which is all that is ever read. A program appends to it, whatever its length."""
    file = folder / STDERR
    with contextlib.suppress(OSError):
        if file.stat().st_size > _MOST_BYTES:
            end = _end(file)
            os.truncate(file, 0)
            files.append(file, end)


def _end(file: Path) -> bytes:
    try:
        with files.opened(file, follow=False) as opened:
            opened.seek(max(0, os.fstat(opened.fileno()).st_size - _READ_BYTES))
            return opened.read(_READ_BYTES)
    except OSError:
        return b""


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _temporary(source: Path, env: dict[str, str]) -> tuple[list[Path], Path | None]:
    """Folders for temporary files, but none that the user works below: then one of the arm's own, with a short name
    for the sockets in it."""
    usual = Path(tempfile.gettempdir()).resolve()
    places = [place for place in (usual, *map(Path, TEMPORARY)) if not source.resolve().is_relative_to(place.resolve())]
    if usual in places:
        return places, None
    scratch = Path(tempfile.mkdtemp(prefix="gobrrr-"))
    env["TMPDIR"] = str(scratch)
    return [*places, scratch], scratch


def _caches(ours: Path, env: dict[str, str], source: Path) -> list[Path]:
    """Caches that exist stay where they are; one that does not is made among ours, and its variable says so. Inductor's
    is always ours: it takes a library that was half written, when an arm was killed, for a whole one ever after."""
    found = []
    for variable, default, part in CACHES:
        usual = env.get(variable) or default
        place = Path(os.path.expanduser(usual), part)  # noqa: PTH111
        if not place.is_absolute() and variable != INDUCTOR:  # none, or one that lies in the arm's own copy
            continue
        if variable == INDUCTOR or not place.is_dir() or source.resolve().is_relative_to(place.resolve()):
            env[variable] = str(ours.resolve() / variable)
            place = Path(env[variable]) / part
            place.mkdir(parents=True, exist_ok=True)
        found.append(place)
    return found


def mend(caches: Path) -> None:
    """Remove libraries that a compiler was killed over: the linker makes them executable at last. To be called when
    nobody compiles."""
    for library in (caches / INDUCTOR).rglob("*.so"):
        with contextlib.suppress(OSError):
            if not library.stat().st_mode & stat.S_IXUSR:
                library.unlink()
