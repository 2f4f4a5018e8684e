"""Files as real Kineto versions, full disks and strangers leave them: a clean error, or what can still be read."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import types
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gobrrr.errors import TraceError
from gobrrr.recording.model.columns import TOO_LARGE
from gobrrr.recording.model.trace import NAME_CHARS, Trace
from gobrrr.recording.trace_files import unpack
from gobrrr.recording.trace_files.kineto import read_stream, read_trace
from gobrrr.recording.trace_files.limits import Limits
from gobrrr.recording.trace_files.salvage import BAD, NO_OBJECT

GOOD = b'{"ph":"X","cat":"cpu_op","name":"good","pid":1,"tid":1,"ts":5,"dur":2,"args":{"External id":4}}'
NO_START = "no start, or one that is not a time"
NO_DURATION = "no duration, or one that is not a time"


def read(data: bytes, limits: Limits | None = None) -> Trace:
    return read_stream(io.BytesIO(data), len(data), "t.json", limits or Limits())


def doc(*events: bytes, head: bytes = b"", tail: bytes = b"") -> bytes:
    return b'{"schemaVersion":1,' + head + b'"traceEvents":[' + b",\n".join(events) + b"]" + tail + b"}"


def op(name: bytes = b'"bad"', ts: bytes = b"7", dur: bytes = b"1", args: bytes = b"{}", more: bytes = b"") -> bytes:
    return (
        b'{"ph":"X","cat":"cpu_op","name":' + name + b',"pid":1,"tid":1,"ts":' + ts + b',"dur":' + dur
        + b',"args":' + args + more + b"}"
    )  # fmt: skip


def names(trace: Trace) -> list[str]:
    return [trace.names[i] for i in trace.ops.name]


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (op(b'"a\x01\x1b[31m\nb"'), "a\x01\x1b[31m\nb"),
        (op(b'"caf\xe9"'), "caf\ufffd"),
        (op(b'"half \\ud83d pair"'), "half \ufffd pair"),
        (op(args=b'{"External id": N/A}'), "bad"),
        (op(args=b'{"occ": nan, "b": -inf , "c": NaN, "d": Infinity, "e": 1e999}'), "bad"),
        (op(args=b"[]"), "bad"),
        (op(args=b"null"), "bad"),
        (op(args=b'{"Input Dims": 3, "Input type": "x", "stream": [1], "Call stack": {}}'), "bad"),
        (op(args=b'{"Input Dims": [[1e999, true, 99999999999999999999, -3], "x", null]}'), "bad"),
        (op(more=b',"name":"second"'), "second"),
        (op(b'"' + b"n" * 20_000 + b'"'), "n" * NAME_CHARS),
        (op(more=b',"pid":1.0,"tid":null'), "bad"),
        (op(more=b',"id":[1],"s":5,"bp":{}'), "bad"),
    ],
)
def test_oddities_that_do_not_cost_the_event(event: bytes, name: str) -> None:
    trace = read(doc(GOOD, event, GOOD))
    assert sorted(names(trace)) == sorted(["good", name, "good"])
    assert not trace.skipped and not trace.truncated


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (op(dur=b"-1"), "negative duration"),
        (op(dur=b"NaN"), NO_DURATION),
        (op(dur=b"1e999"), NO_DURATION),
        (op(dur=b'"3"'), NO_DURATION),
        (op(dur=b"9e15"), NO_DURATION),
        (op(dur=b"9" * 5000), BAD),
        (op(ts=b"null"), NO_START),
        (op(ts=b"1e999"), NO_START),
        (op(ts=b"-1e300"), NO_START),
        (op(ts=b"99999999999999999999999999"), NO_START),
        (op(ts=b"1e-999999999"), None),
        (op(ts=b"-5"), None),
        (op(ts=b'"7"'), NO_START),
        (op(ts=b"true"), NO_START),
        (op(ts=b"[7]"), NO_START),
        (op(name=b"7"), "no name"),
        (op(name=b"null"), "no name"),
        (op(name=b'"say "no" to quotes"'), BAD),
        (op(name=b"@@"), BAD),
        (b'{"ph":"X","cat":"cpu_op","name":"cut","ts":1, "dur"', BAD),
        (b"null", NO_OBJECT),
        (b"7", NO_OBJECT),
        (b'"text"', NO_OBJECT),
        (b"[1,[2]]", NO_OBJECT),
        (b'{"ph":"B","ts":1,"name":"b"}', "phase not known"),
        (b'{"ts":1,"name":"b"}', "phase not known"),
        (b'{"ph":7,"ts":1,"name":"b"}', "phase not known"),
        (b'{"ph":"X","cat":"toplevel","name":"x","ts":1,"dur":1}', "category not known"),
        (op(args=b'{"External id": 99999999999999999999}'), TOO_LARGE),
        (op(args=b'{"External id": "0xffffffffffffffff"}'), TOO_LARGE),
    ],
)
def test_bad_events_are_counted_and_cost_no_other(event: bytes, reason: str | None) -> None:
    trace = read(doc(GOOD, event, GOOD))
    assert names(trace).count("good") == 2
    assert trace.skipped == (Counter({reason: 1}) if reason else Counter())
    assert not trace.truncated
    assert len(trace.ops) == (3 if reason in (None, TOO_LARGE) else 2)
    assert (trace.ops.dur >= 0).all() and (trace.ops.start + trace.ops.dur >= trace.ops.start).all()


def test_nothing_overflows_at_the_edges_of_time() -> None:
    base = b'"baseTimeNanoseconds":2305843009213693951,'
    late = op(ts=b"4611686018427386.5", dur=b"1152921504606846")
    trace = read(doc(GOOD, late, op(ts=b"-4611686018427386"), head=base))
    assert len(trace.ops) == 3
    assert (trace.ops.start + trace.ops.dur > trace.ops.start).all()
    for wild in (b"9223372036854775807", b"99999999999999999999999", b"1e999", b'"x"', b"null", b"1.5"):
        assert read(doc(GOOD, head=b'"baseTimeNanoseconds":' + wild + b",")).ops.start.tolist() == [5000]


def test_odd_fields_beside_the_events() -> None:
    head = b'"deviceProperties":{"a":1},"distributedInfo":[2],"record_shapes":"yes","displayTimeUnit":3,'
    trace = read(doc(GOOD, head=head, tail=b',"traceEvents":[1],"x":"\x01"'))
    assert (trace.properties.devices, trace.properties.distributed, trace.properties.rank) == ((), {}, None)
    assert trace.properties.record_shapes is None and trace.properties.extra["x"] == "\x01"
    broken = read(doc(GOOD, head=b'"baseTimeNanoseconds": 1000, "host": "a"b", '))
    assert broken.ops.start.tolist() == [6000] and "damaged" in broken.note
    after = read(doc(GOOD, GOOD, tail=b',"more":[{"ph":"X","name":"no"},{"ph":"X","name":"no"},{"ph":1}]'))
    assert names(after) == ["good", "good"] and len(after.properties.extra["more"]) == 3


def test_every_truncation_of_a_document_keeps_the_whole_events() -> None:
    data = doc(GOOD, GOOD, GOOD, tail=b',"traceName":"x"')
    first = data.index(GOOD)
    for cut in range(len(data)):
        if cut < first + len(GOOD):
            with pytest.raises(TraceError):
                read(data[:cut])
            continue
        trace = read(data[:cut])
        assert len(trace.ops) == sum(cut >= data.find(GOOD) + i * (len(GOOD) + 2) + len(GOOD) for i in range(3))
        assert trace.truncated == (cut <= data.rindex(b"}]") + 1)
        assert bool(trace.note) == (cut < len(data)) or cut > data.rindex(b"}]") + 1


def test_every_truncation_of_a_gzip_file_is_an_error_or_noted() -> None:
    whole = gzip.compress(doc(*[op(ts=str(i * 17 % 1009).encode()) for i in range(2000)]))
    for cut in range(0, len(whole), 97):
        try:
            trace = read(whole[:cut])
        except TraceError:
            continue
        assert trace.truncated and "compressed data" in trace.note


def test_a_damaged_gzip_file_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "BLOCK", 4096)
    whole = bytearray(gzip.compress(doc(*[op(ts=str(i * 17 % 1009).encode()) for i in range(5000)])))
    assert not read(bytes(whole)).truncated
    wrong_sum = bytes(whole[:-8]) + b"\x00" * 4 + bytes(whole[-4:])
    assert "damaged" in read(wrong_sum).note
    whole[len(whole) // 2] ^= 0xFF
    assert read(bytes(whole)).truncated


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "t.json is empty"),
        (b"  \n", "is empty"),
        (b"hello", "is not JSON"),
        (gzip.compress(gzip.compress(b'{"traceEvents":[]}', mtime=0), mtime=0), "compressed twice"),
        (b"\x00" * 100, "is not JSON"),
        (b"{}", "has no list of traceEvents"),
        (b'{"a": [1, 2]}', "has no list of traceEvents"),
        (b'{"traceEvents": null}', "has no list of traceEvents"),
        (b'{"traceEvents": {"a": 1}}', "has no list of traceEvents"),
        (b'{"a": ', "broken off or damaged before its first event"),
        (b'{"traceEvents": []}', "without any events"),
        (b"[]", "without any events"),
        (b"[1, 2, 3]", "not of events"),
        (b'[{"a": 1}]', "none that torch.profiler writes"),
        (b'{"traceEvents": [1, 2]}', "without any events"),
        (b'{"traceEvents":[{"ph":"X","cat":"blink","name":"x","ts":1,"dur":1}]}', "category not known: 1"),
        (b'{"traceEvents":[{"ph":"M","name":"process_name","args":{"name":"x"}}]}', "nothing ran"),
        (pickle.dumps({"a": 1}), "pickle"),
        (b"PK\x03\x04rest", "zip archive"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(b"{}", mtime=0), "has no list of traceEvents"),
        (b"\x1f\x8brubbish", "cannot be read|is empty"),
    ],
)
def test_what_is_no_trace_is_one_clear_line(data: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message) as error:
        read(data)
    assert "\n" not in str(error.value) and str(error.value).startswith("t.json")


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(TraceError, match="directory"):
        read_trace(tmp_path)


BOMB = gzip.compress(b'{"traceEvents":[' + b" " * (3 << 20), 9, mtime=0)


@pytest.mark.parametrize(
    ("data", "limits", "flag"),
    [
        (doc(GOOD), Limits(file_bytes=20), "--max-file-bytes"),
        (doc(GOOD), Limits(unpacked_bytes=20), "--max-unpacked-bytes"),
        (BOMB, Limits(), "--max-ratio"),
        (doc(*[GOOD] * 11), Limits(events=10), "--max-events"),
        (doc(op(args=b'{"a":' + b"[" * 100 + b"]" * 100 + b"}")), Limits(), "--max-depth"),
        (doc(op(args=b'{"a":' + b"[" * 10**6)), Limits(), "--max-depth"),
        (doc(GOOD, tail=b',"x":' + b"[" * 10**6), Limits(), "--max-depth"),
        (b"[" * 10**6, Limits(), "JSON array|--max-depth"),
        (b'{"a":' * 10**5, Limits(), "damaged"),
        (doc(GOOD, head=b'"x":"' + b"a" * 9000 + b'",'), Limits(value_bytes=3000), "--max-value-bytes"),
        (doc(op(name=b'"' + b"a" * 9000 + b'"')), Limits(value_bytes=3000), "--max-value-bytes"),
    ],
)
def test_limits_name_file_bound_and_flag(
    data: bytes, limits: Limits, flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limits.value_bytes < 10_000:
        monkeypatch.setattr(unpack, "BLOCK", 1000)
    with pytest.raises(TraceError, match=flag) as error:
        read(data, limits)
    assert str(error.value).startswith("t.json") and len(str(error.value)) < 300


def test_brackets_within_strings_are_no_depth() -> None:
    trace = read(doc(op(b'"' + b"[{" * 500 + b'\\""'), GOOD))
    assert len(trace.ops) == 2


def test_a_long_tail_is_left_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "BLOCK", 1000)
    data = doc(GOOD, GOOD, tail=b',"x":[{"name":1},{"name":2}],"y":"' + b"a" * 9000 + b'"')
    trace = read(data, Limits(value_bytes=3000))
    assert len(trace.ops) == 2 and "too long" in trace.note


def test_zstd(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\x28\xb5\x2f\xfd" + doc(GOOD)
    monkeypatch.setattr(unpack, "_zstd", lambda: None)
    with pytest.raises(TraceError, match="pip install zstandard"):
        read(data)
    fake = types.SimpleNamespace(open=lambda file, mode: io.BytesIO(file.read()[4:]))
    monkeypatch.setattr(unpack, "_zstd", lambda: fake)
    assert names(read(data)) == ["good"]


def test_a_list_of_events_need_not_be_closed() -> None:
    for end in (b"", b",", b"]", b" ] \n"):
        trace = read(b"[" + GOOD + b"," + GOOD + end)
        assert len(trace.ops) == 2 and not trace.truncated
    assert read(b"[" + GOOD + b"," + GOOD[:50]).truncated


def test_many_categories_do_not_grow_the_reader_without_bound() -> None:
    events = [json.dumps({"ph": "X", "cat": f"c{i}", "name": "x", "ts": 1, "dur": 1}).encode() for i in range(70_000)]
    trace = read(doc(*events[:35_000], GOOD, *events[35_000:]))
    assert trace.skipped == Counter({"category not known": 70_000})


def test_reading_twice_gives_the_same() -> None:
    data = doc(GOOD, op(dur=b"-1"), op(name=b"@"), GOOD[:-1] + b',"x":"\xff"}')
    one, two = read(data), read(data)
    assert one.skipped == two.skipped and one.note == two.note and one.names == two.names
    assert np.array_equal(one.ops.start, two.ops.start)


def test_ids_of_processes_and_threads_are_cut_as_names_are() -> None:
    event = GOOD.replace(b'"pid":1', b'"pid":"' + b"p" * (NAME_CHARS + 9) + b'"').replace(
        b'"tid":1', b'"tid":"stream 7"'
    )
    (thread,) = read(doc(event)).threads
    assert (len(str(thread.pid)), thread.tid) == (NAME_CHARS, "stream 7")
