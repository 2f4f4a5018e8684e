"""A Kineto document as Nsight Systems would have exported the same program, by NVIDIA's description of its schema."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

PID = 4711
SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, streamId INT,
    correlationId INT, globalPid INT, demangledName INT, shortName INT, gridX INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
    globalPid INT, bytes INT, copyKind INT, srcKind INT, dstKind INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
    globalPid INT, bytes INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, eventClass INT, globalTid INT, correlationId INT,
    nameId INT, returnValue INT);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, totalMemory INT, computeMajor INT, computeMinor INT, smCount INT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INT);
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1790857026000000000);
"""
KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}
MEMORY = ("Pageable", "Pinned", "Device")


def export(document: dict[str, Any], path: Path, pid: int = PID) -> Path:
    """Write it, or add it as another process; ops become ranges as emit_nvtx names them, the profiler's steps become
    ranges of the program's own."""
    base = min(event["ts"] for event in document["traceEvents"] if event.get("ph") == "X")
    with sqlite3.connect(path) as db:
        if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
            db.executescript(SCHEMA)
            for name, number in KINDS.items():
                row = (number, f"CUDA_MEMCPY_KIND_{name.upper()}", name)
                db.execute("INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (?, ?, ?)", row)
            for number, name in enumerate(MEMORY):
                db.execute("INSERT INTO ENUM_CUDA_MEM_KIND VALUES (?, ?, ?)", (number, name.upper(), name))
            for d in document.get("deviceProperties", ()):
                row = (d["id"], d["name"], d["totalGlobalMem"], d["computeMajor"], d["computeMinor"], d.get("numSms"))
                db.execute("INSERT INTO TARGET_INFO_GPU VALUES (?, ?, ?, ?, ?, ?)", row)
        strings = {text: number for number, text in db.execute("SELECT * FROM StringIds")}
        known = len(strings)
        for event in document["traceEvents"]:
            if event.get("ph") == "X":
                begin = round((event["ts"] - base) * 1000)
                _write(db, event, begin, begin + round(event["dur"] * 1000), strings, pid << 24)
        new = [(number, text) for text, number in strings.items() if number > known]
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", new)
    db.close()
    return path


def _write(
    db: sqlite3.Connection, event: dict[str, Any], begin: int, end: int, strings: dict[str, int], process: int
) -> None:
    args, name, thread = event.get("args", {}), event["name"], process + hash(event["tid"]) % 2**20
    where = (args.get("device"), args.get("stream"), args.get("correlation"), process)

    def number(text: str) -> int:
        return strings.setdefault(text, len(strings) + 1)

    def insert(table: str, *row: Any) -> None:
        db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * (len(row) + 2))})", (begin, end, *row))

    match event.get("cat"):
        case "kernel":
            device, stream, link, _ = where
            insert("CUPTI_ACTIVITY_KIND_KERNEL", device, 1, stream, link, process, number(name), number(name), 8)
        case "gpu_memcpy":
            said = re.search(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?", name)
            assert said
            kinds = [MEMORY.index(kind) if kind in MEMORY else None for kind in said.groups()[1:]]
            insert("CUPTI_ACTIVITY_KIND_MEMCPY", *where, args.get("bytes"), KINDS[said[1]], *kinds)
        case "gpu_memset":
            insert("CUPTI_ACTIVITY_KIND_MEMSET", *where, args.get("bytes"))
        case "cuda_runtime" | "cuda_driver":
            insert("CUPTI_ACTIVITY_KIND_RUNTIME", 0, thread, args.get("correlation"), number(f"{name}_v7000"), 0)
        case "cpu_op":
            text = f"{name}, seq = {args.get('Sequence number', 0)}, op_id = 7, sizes = [[512, 512]]"
            insert("NVTX_EVENTS", 59, text, None, thread)
        case "user_annotation":
            insert("NVTX_EVENTS", 59, None, number(name.replace("ProfilerStep#", "step ")), thread)
