"""Rows of work within a budget of wall time, each in a process of its own: one is kept as soon as it is done, what did
not fit, hung or broke is told, and whoever ends all this leaves what was done until then."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

BUDGET_S = 9 * 60.0
PATIENCE = 3.0
"""Times the seconds that a row was expected to take, after which it counts as hung."""
TRIES = 2
"""Calls that a row may be cut off in before it counts as failed, lest it be all that the next calls do."""
GRACE_S, LOOK_S, LOGGED = 3.0, 0.02, 2000
PR_SET_PDEATHSIG = 1
ENDING = (signal.SIGTERM, signal.SIGINT)

Row = dict[str, Any]


class Ended(BaseException):
    """Somebody asked this process to end; nothing that catches errors on the way keeps it."""


class Work(NamedTuple):
    """One row to be: it is begun only where so many seconds are left."""

    name: str
    seconds: float
    do: Callable[[], Row]


def through(
    works: Sequence[Work], book: Path, on: str, budget_s: float, say: Callable[[str], None],
    write: Callable[[list[Row]], object] = lambda _: None, patience: float = PATIENCE,
) -> list[Row]:  # fmt: skip
    """The rows of all, those that were done `on` this device and version before as they were; `write` is given them
    after each. One that fails is a row with `failed`; one with `left_out` is not kept: the next call goes on with it.
    """
    end, done, (kept, cuts) = time.monotonic() + budget_s, list[Row](), read(book, on)

    def so_far(why: str) -> None:
        write([*done, *({"left_out": why, "name": each.name} for each in works[len(done) :])])

    try:
        with _signals():
            for work in works:
                row = kept.get(work.name)
                if row is None:
                    left = end - time.monotonic()
                    row = _tried(work, left, patience * work.seconds, cuts.get(work.name, 0), book, on)
                    say(f"{work.name}: {row.get('failed') or row.get('left_out') or 'done'}")
                done.append(row)
                so_far("not run yet")
    except Ended:
        so_far("not run: the call was ended")
        raise
    return done


def _tried(work: Work, left: float, limit: float, cuts: int, book: Path, on: str) -> Row:
    """A row that is not there yet, kept where it was begun."""
    if cuts >= TRIES:
        row = {"failed": f"cut off in {TRIES} calls (--anew {work.name!r} tries again)"}
    elif left < work.seconds:
        short = f"not run: {max(0.0, left):.0f} s left, it needs {work.seconds:.0f}"
        return {"left_out": short, "name": work.name, "on": on}
    else:
        keep(book, {"begun": work.name, "on": on})
        row = _done(work, min(left, limit))
        if "failed" in row and row["took_s"] >= left:
            return {"left_out": f"cut off: {left:.0f} s were left", "name": work.name, "on": on}
    row = {**row, "name": work.name, "on": on}
    keep(book, row)
    return row


def forget(book: Path, names: Sequence[str]) -> None:
    """Rows of these names, all where none is named."""
    lines = [line for line in _lines(book) if names and line.get("name", line.get("begun")) not in names]
    book.unlink(missing_ok=True)
    for line in lines:
        keep(book, line)


def read(book: Path, on: str) -> tuple[dict[str, Row], dict[str, int]]:
    """(rows that were done `on` it, how often each other was begun), by name."""
    rows: dict[str, Row] = {}
    cuts: dict[str, int] = {}
    for line in _lines(book):
        if line["on"] == on and "begun" in line:
            cuts[line["begun"]] = cuts.get(line["begun"], 0) + 1
        elif line["on"] == on:
            rows[line["name"]] = line
    return rows, {name: count for name, count in cuts.items() if name not in rows}


def _done(work: Work, limit: float) -> Row:
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gobrrr-row-") as scratch:
        out, log = Path(scratch) / "row.json", Path(scratch) / "log"
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            _as_child(work, out, log)
        with _ended_with(pid):
            in_time = _over(pid, limit)
        said = log.read_bytes()[-LOGGED:].decode(errors="replace").strip() if log.exists() else ""
        if in_time and out.exists():
            row = json.loads(out.read_text(encoding="utf-8"))
        else:
            row = {"failed": "its process died" if in_time else f"no end after {limit:.0f} s", "log": said}
    return {**row, "took_s": round(time.monotonic() - start, 1)}


def _as_child(work: Work, out: Path, log: Path) -> NoReturn:
    """The row, in a process group of its own that ends with its parent."""
    with contextlib.suppress(BaseException):
        os.setpgid(0, 0)
        for each in ENDING:
            signal.signal(each, signal.SIG_DFL)
        with contextlib.suppress(OSError, AttributeError):  # Linux alone has it
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(said, 1), os.dup2(said, 2)
        try:
            row = work.do()
        except Exception as error:  # whatever it is, the rows behind it have their turn
            row = {"failed": f"{type(error).__name__}: {str(error)[-1000:]}"}
        draft = out.with_suffix(".draft")
        draft.write_text(json.dumps(row), encoding="utf-8")
        draft.replace(out)
    os._exit(0)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """A signal that asks this process to end becomes Ended."""

    def ended(number: int, _: object) -> NoReturn:
        raise Ended(number)

    before = {each: signal.signal(each, ended) for each in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _ended_with(pid: int) -> Iterator[None]:
    """Whatever ends the waiting ends the group of `pid`, too: before it is reaped, while its number is its own."""
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):  # the second one for what it left behind, too
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
            _over(pid, GRACE_S)
        os.waitpid(pid, 0)


def _over(pid: int, seconds: float) -> bool:
    """Whether the process ended within so many seconds; it stays to be reaped."""
    end = time.monotonic() + seconds
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= end:
            return False
        time.sleep(LOOK_S)
    return True


def _lines(book: Path) -> list[Row]:
    """All whole lines: a call that was killed may have left half of one."""
    found = []
    for line in book.read_text(encoding="utf-8").splitlines() if book.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def keep(book: Path, row: Row) -> None:
    """Add a line to the book, on a line of its own whatever was cut off before it."""
    book.parent.mkdir(parents=True, exist_ok=True)
    with book.open("a+b") as file:
        cut = file.seek(0, os.SEEK_END) and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"
        file.write((b"\n" if cut else b"") + json.dumps(row).encode() + b"\n")
