"""Find the traces that the words of a command line mean: files, folders, patterns, archives."""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from gobrrr.errors import TraceError
from gobrrr.recording.model.trace import Trace
from gobrrr.recording.trace_files import others
from gobrrr.recording.trace_files.kineto import read_stream
from gobrrr.recording.trace_files.limits import DEFAULT, Limits, exceeded
from gobrrr.system import files


class Reader(NamedTuple):
    """One format of traces."""

    endings: tuple[str, ...]
    """Endings of the files that are looked for in folders."""
    mark: bytes
    """Bytes that such a file begins with; empty: anything."""
    function: str
    """module:name of what takes a path and limits, gives a Trace, and raises TraceError; imported when it reads."""

    def read(self, path: Path, limits: Limits) -> Trace:
        """The trace. Raises TraceError."""
        module, _, name = self.function.partition(":")
        trace: Trace = getattr(import_module(module), name)(path, limits)
        return trace


KINETO = Reader((".json", ".json.gz", ".json.zst"), b"", "gobrrr.recording.trace_files.kineto:read_trace")
READERS: tuple[Reader, ...] = (
    Reader((".sqlite",), b"SQLite format 3\0", "gobrrr.recording.trace_files.nsys:read_export"),
    KINETO,
)
PACKABLE = KINETO.endings
"""Endings of the files that an archive may hold: those read in one go."""
ENDINGS = tuple(ending for reader in READERS for ending in reader.endings)
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_RANK = re.compile(r"rank[-_ ]?(\d{1,6})", re.I)
_JOURNAL = re.compile(r"rank\d+\.journal$")
_NO_TRACE = re.compile(r"(report(\.rank.+)?|receipt|(seen|worker)-[\d-]+)\.json$")
"""In the folder of a gobrrr run: what tells it, and what is JSON as its traces are."""
_NUMBER = re.compile(r"(\d{1,6})(?=\D*$)")


class Source(NamedTuple):
    """One trace: a file, or a member of an archive."""

    path: str
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else self.path


def find(words: Iterable[str], limits: Limits = DEFAULT) -> list[Source]:
    """Find all traces, each once, also where links lead to it, in the order of their names. Raises TraceError where a
    word means none."""
    found: dict[Source, Source] = {}
    for word in words:
        sources = list(_of(word, limits))
        if not sources:
            raise TraceError(f"{word}: no trace here", f"give a file that ends in {', '.join(ENDINGS)} or .tar")
        for source in sources:
            found.setdefault(Source(os.path.realpath(source.path), source.member), source)
    return list(found.values())


def _of(word: str, limits: Limits) -> Iterator[Source]:
    path = Path(word)
    if path.is_dir():
        for inner in sorted(_below(path)):
            yield from _file(inner, limits)
    elif path.exists():
        yield from _file(path, limits)
    elif any(letter in word for letter in "*?["):
        for inner in sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor)))):
            yield from _of(str(inner), limits) if inner.exists() else ()
    elif ":" in word and Path(word.rsplit(":", 1)[0]).is_file():
        yield Source(*word.rsplit(":", 1))  # a member of an archive, as we name it
    else:
        raise TraceError(f"{word}: no such file", "is it spelled right?")


def _below(folder: Path) -> Iterator[Path]:
    """Traces and archives in a folder and those in it: links to folders are not followed, what cannot be opened is left
    out, and so is what a run of gobrrr keeps beside its traces."""
    for inside, _, names in os.walk(folder):
        if any(map(_JOURNAL.match, names)):
            names = [name for name in names if not _NO_TRACE.match(name)]
        for path in (Path(inside, name) for name in names if name.endswith((*ENDINGS, *ARCHIVES))):
            if path.is_file():
                yield path


def _file(path: Path, limits: Limits) -> Iterator[Source]:
    if not path.name.endswith(ARCHIVES):
        yield Source(str(path))
        return
    if path.stat().st_size > limits.file_bytes:
        raise exceeded(str(path), "file_bytes", limits.file_bytes, path.stat().st_size)
    try:
        with files.opened(path) as file, tarfile.open(fileobj=file) as archive:
            unpacked = 0
            for member in archive:
                unpacked += member.size
                if unpacked > limits.unpacked_bytes:
                    raise exceeded(str(path), "unpacked_bytes", limits.unpacked_bytes, unpacked)
                if member.isfile() and member.name.endswith(PACKABLE):
                    yield Source(str(path), member.name)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise TraceError(f"{path} cannot be read as an archive: {error}", "is it whole?") from None


def read(source: Source, limits: Limits = DEFAULT) -> Trace:
    """The trace. Raises TraceError."""
    if not source.member:
        return _read_file(Path(source.path), limits)
    try:
        with files.opened(Path(source.path)) as whole, tarfile.open(fileobj=whole) as archive:
            file = archive.extractfile(source.member)
            if file is None:
                raise TraceError(f"{source} is no file", "name one of the archive's files")
            return read_stream(cast(BinaryIO, file), archive.getmember(source.member).size, str(source), limits)
    except (tarfile.TarError, OSError, EOFError, KeyError) as error:
        raise TraceError(f"{source} cannot be read: {error}", "is the archive whole?") from None


def _read_file(path: Path, limits: Limits) -> Trace:
    """By what the file begins with, whatever its name."""
    if error := others.named(str(path)):
        raise error
    return reader_of(path).read(path, limits)


def rank_of(source: Source, trace: Trace) -> int | None:
    """The rank that the file says, or its name; None where neither does."""
    if trace.properties.rank is not None:
        return trace.properties.rank
    name = Path(source.member or source.path).name
    found = _RANK.search(name) or _NUMBER.search(name.split(".", 1)[0])
    return int(found[1]) if found else None


def reader_of(path: Path) -> Reader:
    """The last where the file cannot be opened: reading says that better."""
    most = max(len(reader.mark) for reader in READERS)
    try:
        with files.opened(path) as file:
            begins = file.read(most)
    except OSError:
        return READERS[-1]
    return next(reader for reader in READERS if begins.startswith(reader.mark))
