"""Rows of work within a budget of wall time: one is kept as soon as it is done, and what did not fit is told."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

BUDGET_S = 9 * 60.0
PATIENCE = 3.0
"""Times the seconds that a row was expected to take, after which it counts as hung."""

Row = dict[str, Any]


class Late(BaseException):
    """A row took far longer than expected; nothing that catches errors on the way keeps it."""


class Work(NamedTuple):
    """One row to be: it is begun only where so many seconds are left."""

    name: str
    seconds: float
    do: Callable[[], Row]


def through(works: Sequence[Work], book: Path, on: str, budget_s: float, say: Callable[[str], None]) -> list[Row]:
    """The rows of all, those that were done `on` this device and version before as they were. One that fails is a row
    with `failed`, one that there was no time for has `left_out` and is not kept: the next call goes on with it."""
    end, kept, rows = time.monotonic() + budget_s, _read(book, on), []
    for work in works:
        row = kept.get(work.name)
        if row is None:
            left = end - time.monotonic()
            short = f"not run: {max(0.0, left):.0f} s left, it needs {work.seconds:.0f}"
            row = _done(work, left) if left >= work.seconds else {"left_out": short}
            row = {**row, "name": work.name, "on": on}
            if "left_out" not in row:
                _keep(book, row)
            say(f"{work.name}: {row.get('failed') or row.get('left_out') or 'done'}")
        rows.append(row)
    return rows


def forget(book: Path, names: Sequence[str]) -> None:
    """Rows of these names, all where none is named."""
    rows = [row for row in _lines(book) if names and row["name"] not in names]
    book.unlink(missing_ok=True)
    for row in rows:
        _keep(book, row)


def _done(work: Work, left: float) -> Row:
    start, limit = time.monotonic(), min(left, PATIENCE * work.seconds)
    try:
        with within(limit):
            row = work.do()
    except Late:
        row = {"failed": f"no end after {limit:.0f} s"}
    except Exception as error:  # whatever it is, the rows behind it have their turn
        row = {"failed": f"{type(error).__name__}: {str(error)[-1000:]}"}
    return {**row, "took_s": round(time.monotonic() - start, 1)}


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises Late in this thread after so many seconds; subprocess.run then kills what it waits for."""

    def late(*_: object) -> None:
        raise Late(f"no end after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _read(book: Path, on: str) -> dict[str, Row]:
    return {row["name"]: row for row in _lines(book) if row["on"] == on}


def _lines(book: Path) -> list[Row]:
    return [json.loads(line) for line in book.read_text(encoding="utf-8").splitlines()] if book.exists() else []


def _keep(book: Path, row: Row) -> None:
    book.parent.mkdir(parents=True, exist_ok=True)
    with book.open("a", encoding="utf-8") as file:
        print(json.dumps(row), file=file)
