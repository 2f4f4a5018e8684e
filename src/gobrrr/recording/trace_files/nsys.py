"""Read the SQLite export of Nsight Systems as Kineto's events, so that from here on there is one way.

Tables and columns as in NVIDIA's "SQLite Export Schema Reference"; they are created as needed, so that each may lack,
and a column may lack in older versions, all but a table's times. NVTX ranges of torch.autograd.profiler.emit_nvtx are
torch's ops, others are the program's own; those that count its steps (step 7, iteration_7) stand for the profiler's.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from gobrrr import words
from gobrrr.errors import TraceError
from gobrrr.recording.model.trace import Trace
from gobrrr.recording.trace_files import others
from gobrrr.recording.trace_files.assemble import assemble
from gobrrr.recording.trace_files.limits import DEFAULT, Limits, exceeded
from gobrrr.recording.trace_files.tables import Tables
from gobrrr.recording.trace_files.wire import Args, Batch, Event

EXPORT = "write it with: nsys export --type sqlite FILE.nsys-rep"
PROFILE = "profile with: nsys profile --trace=cuda,nvtx COMMAND, and export with an nsys no older than that"
KERNELS, COPIES, SETS, GRAPHS, CALLS = (
    f"CUPTI_ACTIVITY_KIND_{what}" for what in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "RUNTIME")
)
RANGES = "NVTX_EVENTS"
AT_ONCE = 5_000
"""Rows in hand."""
LONGEST = 4_096
"""Characters of a text that are read: names of kernels reach 2,000, and a file may point to one page many times."""
COPY_KINDS = {1: "HTOD", 2: "DTOH", 8: "DTOD", 9: "HTOH", 10: "PTOP", 11: "UVM_HTOD", 12: "UVM_DTOH", 13: "UVM_DTOD"}
"""CUPTI's CUpti_ActivityMemcpyKind and nsys' own for unified memory, where the file does not bring its own table."""
MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
"""Likewise CUPTI's kinds of memory, as nsys names them."""
MANAGED = {"HtoD": " (Managed -> Device)", "DtoH": " (Device -> Managed)", "DtoD": " (Managed -> Managed)"}
"""What pages of unified memory move between, of which nsys says nothing."""
_SAID = re.compile(r"(UVM_)?([HDP])TO([HDP])$")
_VERSION = re.compile(r"_v\d+$")
_TORCH_OP = re.compile(r"^[\w:<>~ .()]+?(?=, (?:seq|op_id|sizes|input_op_ids) = )|^(?:aten|c10d|prims)::\w+$")
_TORCH = re.compile(r"\bat::|\bc10::|\baten::|libtorch|libc10|triton_\w+_fused")
"""Names that only a program of PyTorch's has: its kernels, ops, libraries and what torch.compile makes."""
_VERSIONS = {"EXPORT_PRODUCT_VERSION": "nsys", "EXPORT_SCHEMA_VERSION": "schema"}
_SEQUENCE = re.compile(r", seq = (\d{1,18})")
_STEP = re.compile(r"(?i)^(?:train(?:ing)?[ _-]?)?(?:step|iter(?:ation)?|batch)[ _#:-]*(\d{1,9})$")
Row = tuple[Any, ...]


def read_export(path: Path, limits: Limits = DEFAULT) -> Trace:
    """The trace of the process with most device time. Raises TraceError where it is not an export, or too large."""
    try:
        if (num_bytes := path.stat().st_size) > limits.file_bytes:
            raise exceeded(str(path), "file_bytes", limits.file_bytes, num_bytes)
        database = _opened(path, limits)
        try:
            return _read(database, path, limits)
        finally:
            database.close()
    except sqlite3.Error as error:
        raise TraceError(f"{path} cannot be read: {error}", f"is it whole? {EXPORT}") from None


def _opened(path: Path, limits: Limits) -> sqlite3.Connection:
    """A stranger's database: read alone, no file made beside it, nothing in it trusted."""
    database = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    database.execute("PRAGMA trusted_schema=OFF")
    if hasattr(database, "setlimit"):  # Python 3.11
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.value_bytes)
    return database


def _read(database: sqlite3.Connection, path: Path, limits: Limits) -> Trace:
    source = str(path)
    export = _Export(database, source, limits)
    tables: Tables = Tables(Counter())
    for batch in export.batches():
        tables.add(batch)
    if not tables.kernels.column("start").size and not export.torch_ops:
        calls = tables.runtime.column("start").size
        told = f"{calls:,} calls of CUDA, but no kernel and no copy" if calls else "no CUDA activity"
        raise TraceError(f"{source} holds {told}", PROFILE)
    notes = [export.note] if export.note else []
    if path.with_name(f"{path.name}-wal").is_file():
        notes.append("what lies in the -wal file beside it was not read: open and close it once with sqlite3")
    trace = assemble(tables, export.fields(), source, False, "; ".join(notes))
    foreign = frozenset() if export.is_torch or export.torch_ops else frozenset({"foreign"})
    return replace(trace, properties=replace(trace.properties, profiler="nsys"), signals=trace.signals | foreign)


class _Export:
    """The tables of one file, each with the columns that it has."""

    def __init__(self, database: sqlite3.Connection, source: str, limits: Limits) -> None:
        self._database, self._source, self._limits = database, source, limits
        self._rows = self._num_chars = 0
        plain = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"  # virtual ones have no page
        names = [name for (name,) in database.execute(plain) if re.fullmatch(r"\w{1,80}", name)]
        self.tables = {name: {row[1] for row in database.execute(f'PRAGMA table_info("{name}")')} for name in names}
        if "StringIds" not in self.tables:
            no_export = TraceError(f"{source} is a database, but no export of Nsight Systems", EXPORT)
            raise others.holding(source, self.tables) or no_export
        self._check_times()
        self.note, self.torch_ops = "", 0
        self._process = self._busiest()
        self._strings: dict[Any, Any] = {
            number: self._held(text) for number, text in self.select("StringIds", "id", "value")
        }
        self.is_torch = any(isinstance(text, str) and _TORCH.search(text) for text in self._strings.values())
        self._stepper = self._stepping()

    def _check_times(self) -> None:
        """Raise TraceError where a table that is read has no times: what is in it would silently be left out."""
        for table in (KERNELS, COPIES, SETS, GRAPHS, CALLS, RANGES):
            for column in ("start", "end"):
                if column not in self.tables.get(table, {column}):
                    what = f"{self._source}: its table {table} has no column {column}"
                    raise TraceError(f"{what} ({self._version()})", f"another version of nsys may help; {EXPORT}")

    def _version(self) -> str:
        """The versions of nsys and of its schema, as the file says."""
        said = {name: value for table in ("META_DATA_EXPORT", "EXPORT_META_DATA")
                for name, value in self.select(table, "name", "value") if isinstance(value, str)}  # fmt: skip
        known = [f"{what} {said[name][:20]}" for name, what in _VERSIONS.items() if name in said]
        return ", ".join(known) or "an unknown version"

    def select(self, table: str, *columns: str) -> Iterator[Row]:
        """Rows of a table, None for a column that it lacks; none where the file has no such table. Counted; texts are
        cut."""
        there = self.tables.get(table)
        if there is None:
            return
        wanted = ", ".join(_cut(column) if column in there else "NULL" for column in columns)
        rows = self._database.execute(f'SELECT {wanted} FROM "{table}"')
        count = 0
        while some := rows.fetchmany(AT_ONCE):
            count += len(some)
            if count > self._limits.events:
                raise exceeded(self._source, "events", self._limits.events)
            yield from some

    def _busiest(self) -> int | None:
        """The process with most device time; None where the file does not tell processes apart."""
        spent: Counter[int] = Counter()
        for table in (KERNELS, GRAPHS, COPIES, SETS):
            for pid, begin, end in self.select(table, "globalPid", "start", "end"):
                if isinstance(pid, int) and isinstance(begin, int) and isinstance(end, int):
                    spent[process_of(pid)] += end - begin
        if len(spent) > 1:
            self.note = f"of {len(spent)} processes in the file the one with most device time is read"
        return spent.most_common(1)[0][0] if spent else None

    def _stepping(self) -> int | None:
        """The thread that counts the steps; where several count (a loader its batches) that with most calls of CUDA."""
        marking = {
            who for who, text, number in self.select(RANGES, "globalTid", "text", "textId")
            if isinstance(who, int) and not self._is_others(who) and _STEP.match(self._said(text, number))
        }  # fmt: skip
        if len(marking) < 2:
            return None
        calls = Counter(who for (who,) in self.select(CALLS, "globalTid") if who in marking)
        return max(marking, key=lambda who: (calls[who], -who))

    def _said(self, text: Any, number: Any) -> str:
        return text if isinstance(text, str) and text else self._text(number)

    def _held(self, text: Any) -> Any:
        """A text that is kept. Raises TraceError where all of them are too long together."""
        self._num_chars += len(text) if isinstance(text, str) else 0
        if self._num_chars > self._limits.unpacked_bytes:
            raise exceeded(self._source, "unpacked_bytes", self._limits.unpacked_bytes)
        return text

    def batches(self) -> Iterator[Batch]:
        """Yield all events that torch.profiler would have written too."""
        yield from self._of(KERNELS, self._kernel, "globalPid", "start", "end", "correlationId", "deviceId", "streamId",
                            "demangledName", "shortName")  # fmt: skip
        yield from self._of(GRAPHS, self._graph, "globalPid", "start", "end", "correlationId", "deviceId", "streamId",
                            "graphId")  # fmt: skip
        kinds = COPY_KINDS | self._enum("ENUM_CUDA_MEMCPY_OPER", "name")
        memory = MEMORY_KINDS | self._enum("ENUM_CUDA_MEM_KIND", "label")

        def copy(
            pid: int, begin: int, end: int, link: Any, device: Any, stream: Any, size: Any, kind: Any, origin: Any,
            target: Any,
        ) -> Event:  # fmt: skip
            said = _SAID.search(kinds.get(kind, ""))
            short = f"{said[2]}to{said[3]}" if said else ""
            between = f" ({memory[origin]} -> {memory[target]})" if origin in memory and target in memory else ""
            name = f"Memcpy {short}{MANAGED.get(short, between) if said and said[1] else between}"
            return self._on_device("gpu_memcpy", name, pid, begin, end, link, device, stream, size)

        yield from self._of(COPIES, copy, "globalPid", "start", "end", "correlationId", "deviceId", "streamId", "bytes",
                            "copyKind", "srcKind", "dstKind")  # fmt: skip
        yield from self._of(SETS, self._set, "globalPid", "start", "end", "correlationId", "deviceId", "streamId",
                            "bytes")  # fmt: skip
        yield from self._of(CALLS, self._call, "globalTid", "start", "end", "correlationId", "nameId")
        yield from self._of(RANGES, self._range, "globalTid", "start", "end", "text", "textId")

    def _of(self, table: str, make: Callable[..., Event | None], *columns: str) -> Iterator[Batch]:
        """Rows of our process that have a begin and an end: the first three columns."""
        events: list[Event] = []
        starts: list[int] = []
        for row in self.select(table, *columns):
            who, begin, end = row[:3]
            self._rows += 1
            if self._rows > self._limits.events:
                raise exceeded(self._source, "events", self._limits.events)
            if not (isinstance(begin, int) and isinstance(end, int)) or self._is_others(who):
                continue
            event = make(who if isinstance(who, int) else 0, begin, end, *row[3:])
            if event is not None:
                events.append(event)
                starts.append(begin)
            if len(events) == AT_ONCE:
                yield Batch(events, np.array(starts, np.int64))
                events, starts = [], []
        if events:
            yield Batch(events, np.array(starts, np.int64))

    def _is_others(self, who: Any) -> bool:
        return self._process is not None and isinstance(who, int) and process_of(who) != self._process

    def _text(self, number: Any) -> str:
        found = self._strings.get(number)
        return found if isinstance(found, str) else ""

    def _enum(self, table: str, column: str) -> dict[Any, str]:
        return {number: text for number, text in self.select(table, "id", column) if isinstance(text, str)}

    def _kernel(self, pid: int, begin: int, end: int, link: Any, device: Any, stream: Any, full: Any, short: Any
                ) -> Event | None:  # fmt: skip
        return self._on_device("kernel", self._text(full) or self._text(short), pid, begin, end, link, device, stream)

    def _graph(self, pid: int, begin: int, end: int, link: Any, device: Any, stream: Any, graph: Any) -> Event | None:
        """A graph that was traced as one."""
        return self._on_device("kernel", f"CUDA graph {graph}", pid, begin, end, link, device, stream)

    def _set(self, pid: int, begin: int, end: int, link: Any, device: Any, stream: Any, size: Any) -> Event | None:
        return self._on_device("gpu_memset", "Memset (Device)", pid, begin, end, link, device, stream, size)

    def _on_device(
        self, category: str, name: str, pid: int, begin: int, end: int, link: Any, device: Any, stream: Any,
        size: Any = -1,
    ) -> Event:  # fmt: skip
        args = Args(correlation=_number(link), device=_number(device), stream=_number(stream), bytes=_number(size))
        return Event("X", category, name or "kernel", process_of(pid), None, None, (end - begin) / 1000, None, args)

    def _call(self, who: int, begin: int, end: int, link: Any, name: Any) -> Event | None:
        text = _VERSION.sub("", self._text(name))
        args = Args(correlation=_number(link))
        return Event("X", "cuda_runtime", text, process_of(who), who % 2**24, None, (end - begin) / 1000, None, args)

    def _range(self, who: int, begin: int, end: int, text: Any, number: Any) -> Event | None:
        """One NVTX range: an op of torch, a step, or something of the program's own."""
        said = self._said(text, number)
        if not said:
            return None
        op, sequence = _TORCH_OP.match(said), _SEQUENCE.search(said)
        step = _STEP.match(said) if self._stepper in (None, who) else None
        self.torch_ops += op is not None
        name = op[0] if op else f"{words.STEP}{step[1]}" if step else said
        args = Args(sequence=int(sequence[1]) if op and sequence else -1)
        return Event("X", "cpu_op" if op else "user_annotation", name, process_of(who), who % 2**24, None,
                     (end - begin) / 1000, None, args)  # fmt: skip

    def fields(self) -> dict[str, Any]:
        """Return the fields that Kineto has at the top of its document: devices, and when the recording began."""
        devices = [
            {"id": number, "name": name, "totalGlobalMem": memory, "computeMajor": major, "computeMinor": minor,
             "numSms": sms}
            for number, name, memory, major, minor, sms in self.select(
                "TARGET_INFO_GPU", "id", "name", "totalMemory", "computeMajor", "computeMinor", "smCount"
            )
        ]  # fmt: skip
        gpus = {
            cuda: gpu for gpu, cuda, pid in self.select("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid")
            if pid in (None, self._process) or self._process is None
        }  # fmt: skip
        if gpus:  # CUDA_VISIBLE_DEVICES: events say CUDA's own number of a device
            by_gpu = {each["id"]: each for each in devices}
            devices = [{**by_gpu[gpu], "id": cuda} for cuda, gpu in gpus.items() if gpu in by_gpu]
        begins = [began for (began,) in self.select("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")]
        return {"deviceProperties": devices, "baseTimeNanoseconds": begins[0] if begins else 0}


def _cut(column: str) -> str:
    return f'CASE typeof("{column}") WHEN \'text\' THEN substr("{column}", 1, {LONGEST}) ELSE "{column}" END'


def process_of(number: int) -> int:
    """The process in a globalPid or globalTid: 24 bits above those of the thread."""
    return number >> 24 & 0xFFFFFF


def _number(value: Any) -> int:
    return value if isinstance(value, int) else -1
