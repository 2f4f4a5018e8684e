"""What Nsight Systems exported says what Kineto's trace of the same program says."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.cli.main import main
from gobrrr.errors import TraceError
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.pipeline.traces import diagnosed
from gobrrr.recording.model.trace import CPU_OP
from gobrrr.recording.trace_files.limits import DEFAULT, Limits
from gobrrr.recording.trace_files.nsys import LONGEST, _opened, process_of, read_export
from gobrrr.recording.trace_files.sources import Source, find, read
from gobrrr.rules.verdict.report import Report
from tests.pipeline.exported import PID, export
from tests.pipeline.grown import CAUSES, Grown, grow
from tests.pipeline.test_grown import accounts

TRACES = Path(os.environ.get("GOBRRR_TRACES", "../shared/traces"))


def told(path: Path) -> Report:
    return diagnosed(Source(str(path)), UNKNOWN, DEFAULT)


def without_shapes(document: dict[str, Any]) -> dict[str, Any]:
    """As emit_nvtx records: no dtypes, so that no work can be counted, and no Python."""
    kept = [event for event in document["traceEvents"] if event.get("cat") != "python_function"]
    for event in kept:
        for name in ("Input Dims", "Input type", "Concrete Inputs", "Input Strides", "External id"):
            event.get("args", {}).pop(name, None)
    return document | {"traceEvents": kept}


def alike(kineto: Report, nsys: Report) -> None:
    assert accounts(nsys) == pytest.approx(accounts(kineto), abs=0.002)
    assert nsys.step.count == kineto.step.count and nsys.step.wall_ns == pytest.approx(kineto.step.wall_ns, rel=1e-3)
    assert nsys.verdict.bound == kineto.verdict.bound
    assert nsys.device and kineto.device and nsys.device.name == kineto.device.name
    assert nsys.device.busy_share == pytest.approx(kineto.device.busy_share, abs=0.001)
    assert nsys.device.awaited_share == pytest.approx(kineto.device.awaited_share, abs=0.001)
    assert dict(nsys.device.classes) == pytest.approx(dict(kineto.device.classes), abs=0.001)
    assert {f.code for f in nsys.findings} == {f.code for f in kineto.findings}


@pytest.mark.parametrize("seed", range(14))
def test_accounts_and_cause_are_those_of_kinetos_trace(seed: int, tmp_path: Path) -> None:
    document = without_shapes(grow(seed, CAUSES[seed % len(CAUSES)]).document())
    (tmp_path / "trace.json").write_text(json.dumps(document))
    alike(told(tmp_path / "trace.json"), told(export(document, tmp_path / "trace.sqlite")))


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the real traces: set GOBRRR_TRACES")
@pytest.mark.parametrize(
    "name", ["hta/v100_ddp_ns_resolution", pytest.param("hta/a100_trace_diff_control", marks=pytest.mark.slow)]
)
def test_real_programs(name: str, tmp_path: Path) -> None:
    document = without_shapes(json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes())))
    (tmp_path / "trace.json").write_text(json.dumps(document))
    alike(told(tmp_path / "trace.json"), told(export(document, tmp_path / "trace.sqlite")))


def test_of_several_processes_the_busiest_is_read(tmp_path: Path) -> None:
    quiet, busy = Grown(), grow(0, "overhead")
    begin = quiet.now
    quiet.op(10, 5)
    quiet.end_of_step(begin)
    file = export(quiet.document(), tmp_path / "two.sqlite", pid=99)
    both = read_export(export(busy.document(), file))
    alone = read_export(export(busy.document(), tmp_path / "one.sqlite"))
    assert len(both.kernels) == len(alone.kernels) and len(both.ops) == len(alone.ops)
    assert "of 2 processes" in both.note and not alone.note
    assert process_of((99 << 24) + 5) == 99


def test_a_database_that_is_no_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.sqlite"
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE people (name TEXT)")
    db.close()
    with pytest.raises(TraceError, match="no export of Nsight Systems"):
        read(Source(str(file)))
    assert main(["diagnose", str(file)]) == 2 and capsys.readouterr().err.count("\n") == 2


@pytest.mark.parametrize("cut", [20, 4096, 20_000])
def test_a_damaged_export_is_one_line(cut: int, tmp_path: Path) -> None:
    file = export(grow(1, "host").document(), tmp_path / "trace.sqlite")
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(TraceError, match=r"cannot be read|holds no"):
        read(Source(str(file)))


def test_nothing_is_written_beside_a_file_and_no_view_is_asked(tmp_path: Path) -> None:
    file = export(grow(1, "host").document(), tmp_path / "trace.sqlite")
    with sqlite3.connect(file) as db:
        db.execute("ALTER TABLE NVTX_EVENTS RENAME TO Hidden")
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n"
        db.execute(f"CREATE VIEW NVTX_EVENTS AS {endless}")
    db.close()
    assert not len(read(Source(str(file))).ops)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.sqlite"]


def test_more_events_than_allowed(tmp_path: Path) -> None:
    file = export(grow(1, "host").document(), tmp_path / "trace.sqlite")
    with pytest.raises(TraceError, match="limit of 50 on events"):
        read_export(file, Limits(events=50))


def test_the_limit_is_on_the_events_of_all_tables(tmp_path: Path) -> None:
    file = export(grow(1, "host").document(), tmp_path / "trace.sqlite")
    db = sqlite3.connect(file)
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    most = max(db.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in tables)
    db.close()
    with pytest.raises(TraceError, match=f"limit of {most} on events"):
        read_export(file, Limits(events=most))


def test_rows_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    document = without_shapes(grow(2, "overhead").document())
    file = export(document, tmp_path / "trace.sqlite")
    before = told(file)
    with sqlite3.connect(file) as db:
        kernel = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, globalPid, correlationId) VALUES (?, ?, ?, ?)"
        for row in [(None, 5, None, 1), ("x", b"y", 0, 1), (5, None, 0, 2**62), (10**18, 10**18 - 5, 0, 1)]:
            db.execute(kernel, row)
        db.execute("INSERT INTO NVTX_EVENTS (start, end, text) VALUES (1, -1, 'open')")
    db.close()
    assert accounts(told(file)) == accounts(before)


def test_older_exports_lack_tables_and_columns(tmp_path: Path) -> None:
    file = export(without_shapes(grow(2, "overhead").document()), tmp_path / "trace.sqlite")
    before = told(file)
    with sqlite3.connect(file) as db:
        for table in ("ENUM_CUDA_MEMCPY_OPER", "ENUM_CUDA_MEM_KIND", "TARGET_INFO_SESSION_START_TIME"):
            db.execute(f"DROP TABLE {table}")
        db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid")
        db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN demangledName")
    db.close()
    assert accounts(told(file)) == accounts(before)


def test_a_program_with_one_range_of_torch_is_torchs(tmp_path: Path) -> None:
    file = export(grow(2, "overhead").document(), tmp_path / "trace.sqlite")
    changed(file, "UPDATE StringIds SET value = 'vecAdd'", "DELETE FROM NVTX_EVENTS")
    assert "foreign" in read_export(file).signals
    row = f"(5, 9, 59, 'aten::resize_', NULL, {(PID << 24) + 1})"
    assert "foreign" not in read_export(changed(file, f"INSERT INTO NVTX_EVENTS VALUES {row}")).signals


def test_its_own_format_is_told_how_to_export(tmp_path: Path) -> None:
    (tmp_path / "a.nsys-rep").write_bytes(b"anything")
    with pytest.raises(TraceError) as caught:
        read(Source(str(tmp_path / "a.nsys-rep")))
    assert "nsys export --type sqlite a.nsys-rep" in caught.value.hint
    with pytest.raises(TraceError) as caught:
        read(Source(str(tmp_path / "a; rm b.nsys-rep")))
    assert "sqlite 'a; rm b.nsys-rep' makes" in caught.value.hint


def test_a_folder_finds_exports(tmp_path: Path) -> None:
    file = export(grow(2, "overhead").document(), tmp_path / "trace.sqlite")
    assert find([str(tmp_path)]) == [Source(str(file))]


def changed(file: Path, *statements: str) -> Path:
    with sqlite3.connect(file) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return file


def test_a_virtual_table_is_not_asked(tmp_path: Path) -> None:
    file = export(grow(1, "host").document(), tmp_path / "trace.sqlite")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS docid, i AS start FROM n"
    changed(file, "DROP TABLE NVTX_EVENTS", f"CREATE VIEW evil AS {endless}",
            "CREATE  VIRTUAL TABLE NVTX_EVENTS USING fts4(start, end, text, content='evil')")  # fmt: skip
    assert not len(read(Source(str(file))).ops)


def test_a_large_export_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    file = export(grow(1, "host").document(), tmp_path / "trace.sqlite")
    with pytest.raises(TraceError, match="limit of 1000 B on file bytes"):
        read_export(file, Limits(file_bytes=1000))


def test_long_texts_are_cut_and_their_sum_is_bounded(tmp_path: Path) -> None:
    file = export(grow(1, "host").document(), tmp_path / "trace.sqlite")
    changed(file, "UPDATE StringIds SET value = value || replace(hex(zeroblob(50000)), '0', 'x')")
    assert max(map(len, read_export(file).names)) == LONGEST
    with pytest.raises(TraceError, match="on unpacked bytes"):
        read_export(file, Limits(unpacked_bytes=LONGEST))


def test_graphs_count_when_the_busiest_process_is_chosen(tmp_path: Path) -> None:
    file = export(grow(2, "host").document(), tmp_path / "trace.sqlite", pid=100)
    columns = "start INT, end INT, globalPid INT, correlationId INT, deviceId INT, streamId INT, graphId INT"
    changed(file, f"CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE ({columns})",
            f"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (0, {10**12}, {200 << 24}, 1, 0, 7, 1)")  # fmt: skip
    trace = read_export(file)
    assert [trace.name(int(number)) for number in trace.kernels.name] == ["CUDA graph 1"]
    assert "of 2 processes in the file" in trace.note


def test_devices_are_those_that_cuda_numbers(tmp_path: Path) -> None:
    """CUDA_VISIBLE_DEVICES=1: what CUDA calls device 0 is the host's second."""
    file = export(grow(2, "host").document(), tmp_path / "trace.sqlite")
    changed(file, "DELETE FROM TARGET_INFO_GPU", "INSERT INTO TARGET_INFO_GPU VALUES (0, 'Tesla T4', 1, 7, 5, 40)",
            "INSERT INTO TARGET_INFO_GPU VALUES (1, 'NVIDIA A100-SXM4-80GB', 1, 8, 0, 108)",
            "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INT, cudaId INT, pid INT)",
            f"INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (1, 0, {PID})")  # fmt: skip
    (device,) = read_export(file).properties.devices
    assert device["name"] == "NVIDIA A100-SXM4-80GB" and device["id"] == 0


def test_a_loaders_batches_are_no_steps_beside_the_trainings(tmp_path: Path) -> None:
    file = export(grow(2, "host").document(), tmp_path / "trace.sqlite")
    before = read_export(file).steps
    ranges = [f"INSERT INTO NVTX_EVENTS VALUES ({at * 1000}, {at * 1000 + 900}, 59, 'batch {at}', NULL, "
              f"{(PID << 24) + 999999})" for at in range(64)]  # fmt: skip
    assert np.array_equal(read_export(changed(file, *ranges)).steps.start, before.start)


def test_what_lies_in_a_wal_is_said_to_be_missing(tmp_path: Path) -> None:
    file = export(grow(2, "host").document(), tmp_path / "trace.sqlite")
    (tmp_path / "trace.sqlite-wal").write_bytes(b"anything")
    assert "-wal file" in read_export(file).note


KERNEL_TABLE, CALL_TABLE = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"


def test_names_are_the_full_ones_without_versions(tmp_path: Path) -> None:
    file = export(grow(2, "host").document(), tmp_path / "trace.sqlite")
    full = read_export(file)
    assert "cudaLaunchKernel" in full.names and not any("_v7000" in name for name in full.names)
    changed(file, "INSERT INTO StringIds VALUES (9999, 'sgemm')", f"UPDATE {KERNEL_TABLE} SET shortName = 9999")
    assert "sgemm" not in read_export(file).names
    changed(file, f"UPDATE {KERNEL_TABLE} SET demangledName = NULL")
    short = read_export(file)
    assert {short.name(int(number)) for number in short.kernels.name} == {"sgemm"}


def test_a_copy_between_devices_is_one_without_the_files_own_table(tmp_path: Path) -> None:
    """NVIDIA's CUpti_ActivityMemcpyKind: 10 is peer to peer."""
    file = export(grow(2, "host").document(), tmp_path / "trace.sqlite")
    changed(file, "DROP TABLE ENUM_CUDA_MEMCPY_OPER", "DROP TABLE ENUM_CUDA_MEM_KIND",
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES "
            f"(5, 9, 0, 7, 1, {PID << 24}, 64, 10, NULL, NULL)")  # fmt: skip
    assert "Memcpy PtoP" in read_export(file).names


def test_pages_of_unified_memory_move_without_a_call(tmp_path: Path) -> None:
    """nsys' own kinds 11 and 12, of which it knows no memory: exports of 2022.2 bring no table of kinds."""
    file = export(without_shapes(grow(2, "overhead").document()), tmp_path / "trace.sqlite")
    changed(file, "DROP TABLE ENUM_CUDA_MEMCPY_OPER", "DROP TABLE ENUM_CUDA_MEM_KIND")
    begin, until = sqlite3.connect(file).execute(f"SELECT MIN(start), MAX(end) FROM {KERNEL_TABLE}").fetchone()
    many = np.linspace(begin, until, 2000).astype(int).tolist()
    moved = [f"({at}, {at + 9}, 0, 0, 0, {PID << 24}, 4096, {11 + at % 2}, 7, 7)" for at in many]
    changed(file, f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES {', '.join(moved)}")
    assert {"Memcpy HtoD (Managed -> Device)", "Memcpy DtoH (Device -> Managed)"} <= set(read_export(file).names)
    assert not [f for f in told(file).findings if f.code == "BRR909"]
    changed(file, "CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INT, name TEXT)",
            "INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (12, 'CUDA_MEMCPY_KIND_UVM_HTOH')")  # fmt: skip
    assert "Memcpy HtoH" in read_export(file).names, "a kind that nsys does not have yet"


def test_ops_without_a_number_are_torchs_too(tmp_path: Path) -> None:
    """emit_nvtx of older versions names those that need no gradient alone."""
    file = export(grow(2, "host").document(), tmp_path / "trace.sqlite")
    before = read_export(file).ops.kind.tolist().count(CPU_OP)
    row = f"(5, 9, 59, 'aten::resize_', NULL, {(PID << 24) + 1}), (5, 9, 59, 'mine::resize', NULL, {(PID << 24) + 1})"
    after = read_export(changed(file, f"INSERT INTO NVTX_EVENTS VALUES {row}")).ops.kind.tolist().count(CPU_OP)
    assert after == before + 1


@pytest.mark.parametrize("table", [KERNEL_TABLE, "NVTX_EVENTS"])
def test_a_table_whose_times_are_called_otherwise_is_refused(table: str, tmp_path: Path) -> None:
    """Not read as if it were empty; the version is told."""
    file = export(grow(2, "host").document(), tmp_path / "trace.sqlite")
    changed(file, f'ALTER TABLE {table} RENAME COLUMN "end" TO endNs',
            "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)",
            "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2030.1.1'), "
            "('EXPORT_SCHEMA_VERSION', '4.0.0')")  # fmt: skip
    with pytest.raises(TraceError, match=rf"{table} has no column end \(nsys 2030\.1\.1, schema 4\.0\.0\)"):
        read_export(file)


def test_an_export_without_work_of_a_device_is_refused(tmp_path: Path) -> None:
    file = of_cuda(tmp_path)
    emptied = [f"DELETE FROM CUPTI_ACTIVITY_KIND_{table}" for table in ("KERNEL", "MEMCPY", "MEMSET")]
    with pytest.raises(TraceError, match=r"holds [\d,]+ calls of CUDA, but no kernel and no copy"):
        read_export(changed(file, *emptied))
    with pytest.raises(TraceError, match="holds no CUDA activity"):
        read_export(changed(file, f"DROP TABLE {CALL_TABLE}"))


def of_cuda(folder: Path) -> Path:
    """A program that has nothing of torch: no op, and kernels of its own."""
    file = export(grow(2, "overhead").document(), folder / "trace.sqlite")
    return changed(file, "DROP TABLE NVTX_EVENTS", "UPDATE StringIds SET value = 'vecAdd' WHERE value LIKE '%at::%'")


def test_nothing_of_torch_is_advised_where_nothing_of_it_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(of_cuda(tmp_path)), "-v"]) == 0
    said = capsys.readouterr().out.replace("torch.autograd.profiler.emit_nvtx()", "")
    assert "BRR504" in said and "CUDA graph" in said
    assert not [word for word in ("torch.", "Python", "remedies", "prof.step") if word in said], said
    changed(tmp_path / "trace.sqlite", "INSERT INTO StringIds VALUES (9999, 'void at::native::vectorized<int>(int)')")
    assert main(["diagnose", str(tmp_path / "trace.sqlite"), "-v"]) == 0
    assert "torch.compile(" in capsys.readouterr().out


def test_a_ranges_own_text_comes_before_the_string_that_it_points_to(tmp_path: Path) -> None:
    file = export(grow(2, "host").document(), tmp_path / "trace.sqlite")
    changed(file, "INSERT INTO StringIds VALUES (9999, 'pointed to')",
            f"INSERT INTO NVTX_EVENTS VALUES (5, 9, 59, 'its own', 9999, {(PID << 24) + 1})",
            f"INSERT INTO NVTX_EVENTS VALUES (5, 9, 59, '', 9999, {(PID << 24) + 1})")  # fmt: skip
    trace = read_export(file)
    names = [trace.name(int(number)) for number in trace.ops.name]
    assert names.count("its own") == names.count("pointed to") == 1


def test_threads_and_processes_are_told_apart_by_all_their_bits(tmp_path: Path) -> None:
    """24 of the thread, 24 of the process above them; what lies above is the computer's."""
    document = grow(2, "host").document()
    (before,) = set(read_export(export(document, tmp_path / "a.sqlite")).ops.thread.tolist())
    file = export(document, tmp_path / "trace.sqlite")
    own, *_ = sqlite3.connect(file).execute("SELECT globalTid FROM NVTX_EVENTS").fetchone()
    changed(file, f"INSERT INTO NVTX_EVENTS VALUES (5, 9, 59, 'aside', NULL, {own ^ 1 << 20})",
            f"INSERT INTO {CALL_TABLE} VALUES (5, 9, 0, {own ^ 1 << 21}, 7, 1, 0)")  # fmt: skip
    trace = read_export(file)
    threads = set(trace.ops.thread.tolist()), set(trace.runtime.thread.tolist())
    assert len(threads[0]) == 2 and len(threads[1]) == 2 and len(set.union(*threads)) == 3 and before in threads[0]
    assert process_of((1 << 56) + (99 << 24) + 5) == 99


def test_times_count_from_when_the_session_began(tmp_path: Path) -> None:
    file = export(grow(2, "host").document(), tmp_path / "trace.sqlite")
    assert read_export(file).properties.base_time == 1790857026000000000
    assert read_export(changed(file, "DROP TABLE TARGET_INFO_SESSION_START_TIME")).properties.base_time == 0


def test_nobodys_lock_is_waited_for_and_no_function_of_the_file_is_trusted(tmp_path: Path) -> None:
    """As it lies: a program that has it open cannot stop the reading, nor is a lock taken that would stop others."""
    file = export(grow(2, "host").document(), tmp_path / "trace.sqlite")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert len(read_export(file).ops)
    other.close()
    database = _opened(file, DEFAULT)
    assert database.execute("PRAGMA trusted_schema").fetchone() == (0,)
    database.close()
