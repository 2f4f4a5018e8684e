"""The reader gives back what was written: any timeline, year, unit, order and layout, wherever its blocks are cut."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.recording.model import trace as tr
from gobrrr.recording.model.trace import Trace
from gobrrr.recording.trace_files import unpack
from gobrrr.recording.trace_files.assemble import within_marked
from gobrrr.recording.trace_files.kineto import read_stream, read_trace
from gobrrr.recording.trace_files.salvage import BAD
from tests.support.kineto_timelines import DEVICE, HOST, Format, Span, document, event, formats, spans

KINDS = {"op": tr.CPU_OP, "annotation": tr.USER_ANNOTATION, "python": tr.PYTHON_FUNCTION}
KINDS |= {"kernel": tr.KERNEL, "memcpy": tr.MEMCPY, "memset": tr.MEMSET}


def read(data: bytes) -> Trace:
    return read_stream(io.BytesIO(data), len(data), "test.json")


def rows(trace: Trace) -> Counter[Span]:
    """Every event of a trace as the span that it was written from."""
    found: list[Span] = []
    kinds = {kind: table for table, kind in KINDS.items() if table in HOST}
    for name, start, dur, thread, kind, link, sig in zip(
        *(
            getattr(trace.ops, c).tolist()
            for c in ("name", "start", "dur", "thread", "kind", "external_id", "signature")
        ),
        strict=True,
    ):
        shape = trace.signatures[sig].shapes[0] if sig >= 0 else ()
        lane = trace.threads[thread].tid
        assert isinstance(lane, int)
        found.append(Span(kinds[kind], trace.names[name], start, dur, lane, link, shape))
    kinds = {kind: table for table, kind in KINDS.items() if table in DEVICE}
    columns = ("name", "start", "dur", "stream", "kind", "correlation")
    for name, start, dur, lane, kind, link in zip(*(getattr(trace.kernels, c).tolist() for c in columns), strict=True):
        found.append(Span(kinds[kind], trace.names[name], start, dur, lane, link))
    columns = ("name", "start", "dur", "thread", "correlation")
    for name, start, dur, thread, link in zip(*(getattr(trace.runtime, c).tolist() for c in columns), strict=True):
        lane = trace.threads[thread].tid
        assert isinstance(lane, int)
        found.append(Span("runtime", trace.names[name], start, dur, lane, link))
    return Counter(found)


def written(timeline: list[Span], fmt: Format) -> Counter[Span]:
    """What is to come back: times in the format's unit, shapes of ops alone, annotations of 2021 by their own name."""
    return Counter(replace(s, shape=s.shape if s.table == "op" else ()) for s in timeline)


@given(st.data(), formats(), st.integers(150, 4000))
@settings(max_examples=80, deadline=None)
def test_what_was_written_comes_back(data: st.DataObject, fmt: Format, block: int) -> None:
    timeline = data.draw(spans(fmt.unit))
    text = document([event(span, fmt) for span in timeline], fmt)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpack, "BLOCK", block)
        trace = read(text)
    assert rows(trace) == written(timeline, fmt)
    assert (trace.skipped, trace.truncated, trace.note) == (Counter(), False, "")
    for table in (trace.ops, trace.kernels, trace.runtime):
        order = np.lexsort((-table.dur, table.start))
        assert (np.diff(table.start) >= 0).all() and (table.dur[order] == table.dur).all()


@given(st.data(), formats(), st.integers(200, 4000))
@settings(max_examples=60, deadline=None)
def test_the_lenient_scanner_agrees_with_the_decoder(data: st.DataObject, fmt: Format, block: int) -> None:
    """One broken event sends its block to the other reader; all the others must come out the same."""
    timeline = data.draw(spans(fmt.unit))
    events = [event(span, fmt) for span in timeline]
    place = data.draw(st.integers(0, len(events) - 1))
    events.insert(place, '{"ph": "X", "cat": "cpu_op", "name": oops, "ts": 1}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpack, "BLOCK", block)
        trace = read(document(events, fmt))
    assert rows(trace) == written(timeline, fmt)
    assert trace.skipped == Counter({BAD: 1})
    assert "oops" in trace.note and not trace.truncated


@given(st.data(), formats())
@settings(max_examples=50, deadline=None)
def test_order_of_events_does_not_matter(data: st.DataObject, fmt: Format) -> None:
    timeline = data.draw(spans(fmt.unit))
    shuffled = data.draw(st.permutations(timeline))
    one, two = (read(document([event(s, fmt) for s in order], fmt)) for order in (timeline, shuffled))
    assert rows(one) == rows(two)
    assert one.ops.start.tolist() == two.ops.start.tolist() and one.kernels.dur.tolist() == two.kernels.dur.tolist()


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10), st.integers(0, 1), st.booleans()), max_size=20))
@settings(deadline=None)
def test_backward_is_what_lies_within_a_marked_event(drawn: list[tuple[int, int, int, bool]]) -> None:
    ordered = sorted(drawn, key=lambda row: (row[0], -row[1]))
    start, dur, thread = (np.array([row[i] for row in ordered], np.int64) for i in range(3))
    marked = np.array([row[3] for row in ordered], bool)
    inside = within_marked(start, dur, thread.astype(np.int32), marked)
    for i, (begin, length, lane, mark) in enumerate(ordered):
        holders = [(b, b + d) for b, d, t, m in ordered if m and t == lane]
        if mark or any(b < begin < e for b, e in holders):
            assert inside[i]
        elif not any(b <= begin and begin + length <= e for b, e in holders):
            assert not inside[i]


def test_nanoseconds_beyond_a_double_are_kept() -> None:
    """Absolute microseconds with decimals, as one Kineto version wrote them: a double would round to 250 ns."""
    one = '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1712195495519689.047,"dur":0.001}'
    for count in (1, 200):
        trace = read(document([one] * count, Format(base=0)))
        assert set(trace.ops.start.tolist()) == {1712195495519689047}
        assert set(trace.ops.dur.tolist()) == {1}


def test_everything_of_a_trace_of_today() -> None:
    trace = read(FULL.encode())
    assert trace.signals == {"ops", "shapes", "stacks", "python", "device", "links", "memory", "steps", "flows"}
    assert trace.properties.rank == 3 and trace.properties.world_size == 8
    assert trace.properties.devices[0]["name"] == "NVIDIA X" and trace.properties.extra == {"host_name": "h"}
    assert trace.properties.record_shapes is True
    names = [trace.names[i] for i in trace.ops.name]
    ops = dict(zip(names, range(len(names)), strict=True))
    assert trace.ops.kind[ops["ProfilerStep#3"]] == tr.USER_ANNOTATION
    linear = trace.signatures[trace.ops.signature[ops["aten::cat"]]]
    assert linear.shapes == (((3, 4), (3, 4)), ()) and linear.strides == (((4, 1), (4, 1)), ())
    assert linear.dtypes == ("TensorList", "Scalar") and linear.concrete == ("", "1")
    backward = {name for name, row in ops.items() if trace.ops.is_backward[row]}
    assert backward == {"autograd::engine::evaluate_function: CatBackward0", "CatBackward0", "aten::narrow"}
    assert trace.ops.sequence[ops["aten::cat"]] == trace.ops.sequence[ops["CatBackward0"]] == 5
    assert trace.ops.forward_thread[ops["CatBackward0"]] == 1
    assert trace.threads[0] == tr.ThreadInfo(10, 10, "thread 10 (python)")
    kernel = trace.kernels.take(trace.kernels.kind == tr.KERNEL)
    assert kernel.blocks_per_sm[0] == 0.5
    comm = trace.kernels.take(trace.kernels.kind == tr.COMMUNICATION)
    assert [trace.names[i] for i in comm.name] == ["generic_kernel_x", "ncclDevKernel_AllReduce"]
    assert trace.collectives[comm.collective[0]] == tr.Collective("allreduce", "Float", 64, 64, 2, "0", "[0, 1]")
    copy = trace.kernels.take(trace.kernels.kind == tr.MEMCPY)
    assert (copy.bytes[0], copy.stream[0], copy.device[0]) == (65536, 16, 0)
    assert len(trace.device_annotations) == 1
    assert trace.steps.number.tolist() == [3] and trace.steps.dur.tolist() == [1000_000]
    assert trace.flows.forward.tolist() == [1_000_000_010_000] and trace.flows.backward.tolist() == [1_000_000_500_000]
    assert [(trace.names[i], d) for i, d in zip(trace.markers.name, trace.markers.dur, strict=True)] == [
        ("gobrrr.forward", 5000),
        ("gobrrr.line", 0),
    ]
    assert trace.memory.bytes.tolist() == [512, -512] and trace.memory.device_type.tolist() == [0, 0]
    assert trace.skipped == Counter({"category not known": 1, "phase not known": 1})
    assert trace.ids("aten::cat").tolist() == [trace.names.index("aten::cat")] and trace.name(0) == trace.names[0]


FULL = """{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA X"}, 3], "record_shapes": 1,
"distributedInfo": {"rank": 3, "world_size": 8}, "baseTimeNanoseconds": 1000000000000, "host_name": "h",
"traceEvents": [
{"ph":"M","name":"thread_name","pid":10,"tid":10,"ts":0,"args":{"name":"thread 10 (python)"}},
{"ph":"M","name":"process_labels","pid":10,"tid":10,"ts":0,"args":{"labels":"CPU"}},
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":10,"tid":10,"ts":0,"dur":1000,"args":{"External id":1}},
{"ph":"X","cat":"python_function","name":"nn.Module: Net","pid":10,"tid":10,"ts":1,"dur":90,
 "args":{"Python parent id":null,"Python id":9}},
{"ph":"X","cat":"user_annotation","name":"gobrrr.forward","pid":10,"tid":10,"ts":2,"dur":5},
{"ph":"X","cat":"cpu_op","name":"aten::cat","pid":10,"tid":10,"ts":10,"dur":20,"args":{"External id":2,
 "Sequence number":5,"Fwd thread id":0,"Concrete Inputs":["","1"],"Input type":["TensorList","Scalar"],
 "Input Strides":[[[4,1],[4,1]],[]],"Input Dims":[[[3,4],[3,4]],[]],"Ev Idx":3}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":10,"tid":10,"ts":12,"dur":5,
 "args":{"External id":2,"cbid":211,"correlation":77}},
{"ph":"X","cat":"kernel","name":"elementwise","pid":0,"tid":7,"ts":30,"dur":9,"args":{"External id":2,"device":0,
 "stream":7,"correlation":77,"registers per thread":32,"shared memory":1024,"blocks per SM":0.5,"grid":[4,2,1],
 "block":["a"],"est. achieved occupancy %":40}},
{"ph":"X","cat":"kernel","name":"generic_kernel_x","pid":0,"tid":20,"ts":40,"dur":9,"args":{"stream":20,
 "Collective name":"allreduce","dtype":"Float","In msg nelems":64,"Out msg nelems":64,"Group size":2,
 "Process Group Name":"0","Process Group Ranks":"[0, 1]"}},
{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":20,"ts":50,"dur":9,"args":{"stream":20}},
{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":0,"tid":7,"ts":60,"dur":9,
 "args":{"stream":"0x10","device":"0","bytes":"65536"}},
{"ph":"X","cat":"gpu_user_annotation","name":"ProfilerStep#3","pid":0,"tid":7,"ts":30,"dur":40},
{"ph":"X","cat":"cuda_sync","name":"Stream Sync","pid":0,"tid":7,"ts":70,"dur":4,"args":{"stream":4294967295}},
{"ph":"X","cat":"cpu_op","name":"autograd::engine::evaluate_function: CatBackward0","pid":10,"tid":10,
 "ts":490,"dur":100},
{"ph":"X","cat":"cpu_op","name":"CatBackward0","pid":10,"tid":10,"ts":495,"dur":80,
 "args":{"Sequence number":5,"Fwd thread id":1}},
{"ph":"X","cat":"cpu_op","name":"aten::narrow","pid":10,"tid":10,"ts":500,"dur":10},
{"ph":"X","cat":"cpu_op","name":"aten::other_thread","pid":10,"tid":11,"ts":500,"dur":10},
{"ph":"s","cat":"fwdbwd","name":"fwdbwd","id":1,"pid":10,"tid":10,"ts":10},
{"ph":"f","cat":"fwdbwd","name":"fwdbwd","id":1,"pid":10,"tid":10,"ts":500,"bp":"e"},
{"ph":"s","cat":"fwdbwd","name":"fwdbwd","id":2,"pid":10,"tid":10,"ts":11},
{"ph":"s","cat":"ac2g","name":"ac2g","id":77,"pid":10,"tid":10,"ts":12},
{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":10,"tid":10,"ts":13,
 "args":{"Bytes":512,"Addr":139640000000000,"Total Allocated":512,"Total Reserved":0,"Device Id":-1,"Device Type":0}},
{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":10,"tid":10,"ts":14,
 "args":{"Bytes":-512,"Device Type":0}},
{"ph":"i","s":"t","name":"gobrrr.line","pid":10,"tid":10,"ts":15},
{"ph":"i","s":"g","name":"Iteration Start: PyTorch Profiler","pid":"Traces","tid":"Trace PyTorch Profiler","ts":0},
{"ph":"X","cat":"Trace","ts":0,"dur":1000,"pid":"Spans","tid":"PyTorch Profiler","name":"PyTorch Profiler (0)"},
{"ph":"X","cat":"cuda_profiler_range","name":"k","pid":0,"tid":0,"ts":1,"dur":1},
{"ph":"B","cat":"cpu_op","name":"open","pid":10,"tid":10,"ts":1}]}"""


def test_a_trace_of_2021() -> None:
    """Categories with capitals, thread ids as text, annotations among the operators, stacks as text."""
    trace = read(
        b'{"schemaVersion":1,"traceEvents":['
        b'{"ph":"X","cat":"Operator","name":"ProfilerStep#5","pid":7,"tid":"7","ts":1623142623460111,"dur":25,"args":{}},'
        b'{"ph":"X","cat":"Operator","name":"aten::mm","pid":7,"tid":7,"ts":1623142623460112,"dur":5,"args":{'
        b'"External id":2,"Input Dims":[[3,4],[4,5]],"Call stack":"a.py(3): f;b.py(9): <module>",'
        b'"Input type":["float",""]}},'
        b'{"ph":"X","cat":"Runtime","name":"cudaLaunchKernel","pid":7,"tid":"7","ts":1623142623460113,"dur":1,'
        b'"args":{"correlation":9,"external id":2,"external ts":1623142623460112}},'
        b'{"ph":"X","cat":"Kernel","name":"gemm","pid":0,"tid":"stream 7","ts":1623142623460120,"dur":2,'
        b'"args":{"correlation":9,"external id":2,"device":0}}]}'
    )
    assert trace.signals == {"ops", "shapes", "stacks", "device", "links", "steps"}
    assert trace.ops.kind.tolist() == [tr.USER_ANNOTATION, tr.CPU_OP]
    assert trace.threads == (tr.ThreadInfo(7, 7, ""),)
    assert trace.stacks == ("a.py(3): f;b.py(9): <module>",) and trace.ops.stack.tolist() == [-1, 0]
    assert trace.kernels.stream.tolist() == [7]
    assert trace.kernels.external_id.tolist() == trace.runtime.external_id.tolist() == [2]
    assert trace.kernels.start.tolist() == [1623142623460120_000]


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".anything"])
def test_compression_is_told_by_content_and_not_by_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    for data in (FULL.encode(), gzip.compress(FULL.encode()), b"\xef\xbb\xbf \n" + FULL.encode()):
        path.write_bytes(data)
        assert len(read_trace(path).ops) == 8


def test_memory_stays_below_four_times_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured by Python's own allocator; `make bench` measures the whole process on real files."""
    import tracemalloc

    fmt = Format(indent=None)
    timeline = [Span("op", "aten::mm", fmt.base + 1000 * i, 900, 0, i, (i % 50, 4)) for i in range(20_000)]
    data = document([event(span, fmt) for span in timeline], fmt)
    monkeypatch.setattr(unpack, "BLOCK", len(data) // 8)
    tracemalloc.start()
    try:
        assert len(read(data).ops) == 20_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(data)
