"""Broken files by the thousand: the reader gives a sound Trace or a TraceError, and nothing else; and what it gives can
be accounted for and judged."""

from __future__ import annotations

import dataclasses
import gzip
import io
import random

import numpy as np
import pytest

from gobrrr.errors import TraceError
from gobrrr.ledger.build import build_ledger
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.recording.model.call_tree import nest_threads
from gobrrr.recording.model.trace import Trace
from gobrrr.recording.trace_files import unpack
from gobrrr.recording.trace_files.kineto import read_stream
from gobrrr.recording.trace_files.limits import Limits
from gobrrr.recording.trace_files.offline import of_trace
from gobrrr.report.forms.json import to_json
from gobrrr.report.text.report import render
from gobrrr.rules import judge
from gobrrr.rules.verdict.build import build
from tests.recording.test_kineto import FULL
from tests.support.kineto_timelines import Format, Span, document, event

TABLES = ("op", "annotation", "python", "kernel", "memcpy", "memset", "runtime")
LIMITS = Limits(unpacked_bytes=1 << 22, events=10_000, value_bytes=1 << 18)
PIECES = (
    *(
        b'{"',
        b'"}',
        b"},{",
        b"]",
        b"[",
        b"}",
        b"null",
        b"NaN",
        b"-",
        b"1e999",
        b"9" * 30,
        b"\x00",
        b"\xff\xfe",
        b"\\",
        b'"',
    ),
    *(
        b'\\ud800"',
        b'{"ph":"X",',
        b'"ts":',
        b'"dur":-1,',
        b'"traceEvents":[',
        b"[" * 80,
        b"N/A",
        b"\x1f\x8b",
        b"\xef\xbb\xbf",
    ),
)


def seeds() -> list[bytes]:
    """Small valid files of every format."""
    timeline = [Span(t, f"{t} {i}", 10**15 + 977 * i, 500, i % 2, i, (2, 3)) for i, t in enumerate(TABLES * 2)]
    formats = [Format(2021, 0, 1000), Format(2026), Format(2026, indent=1), Format(2026, array=True)]
    files = [document([event(span, fmt) for span in timeline], fmt) for fmt in formats]
    return [*files, FULL.encode()]


def broken(data: bytes, rng: random.Random) -> bytes:
    """One to four accidents: a flipped byte, a cut, a hole, a piece put in, two parts exchanged; sometimes gzipped."""
    text = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        accident = rng.randrange(6)
        if accident == 0 and at < len(text):
            text[at] ^= 1 << rng.randrange(8)
        elif accident == 1:
            del text[at:]
        elif accident == 2:
            del text[at : at + rng.randrange(200)]
        elif accident == 3:
            text[at:at] = rng.choice(PIECES)
        elif accident == 4:
            text[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(8)))
        else:
            text[at:at] = text[: rng.randrange(400)]
    if rng.random() < 0.15:
        packed = bytearray(gzip.compress(bytes(text), 1))
        if rng.random() < 0.7:
            packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
        return bytes(packed)
    return bytes(text)


def check_sound(trace: Trace) -> None:
    """Whatever the file was, these hold for every Trace."""
    for table in (trace.ops, trace.kernels, trace.runtime, trace.steps, trace.markers, trace.device_annotations):
        lengths = {len(getattr(table, f.name)) for f in dataclasses.fields(table)}
        assert len(lengths) == 1
        assert (table.dur >= 0).all() and (np.diff(table.start) >= 0).all()
        assert (table.start + table.dur >= table.start).all()
    for ids, values in (
        (trace.ops.name, trace.names),
        (trace.kernels.name, trace.names),
        (trace.runtime.thread, trace.threads),
        (trace.ops.thread, trace.threads),
        (trace.ops.signature, trace.signatures),
        (trace.ops.stack, trace.stacks),
        (trace.kernels.collective, trace.collectives),
    ):
        assert not len(ids) or (-1 <= ids.min() and ids.max() < len(values))
    assert len(trace.ops) + len(trace.kernels) + len(trace.runtime) + len(trace.memory) + len(trace.markers) > 0
    assert all(count > 0 for count in trace.skipped.values())
    for name in trace.names:
        name.encode()
    assert (nest_threads(trace.ops.start, trace.ops.dur, trace.ops.thread).self_time >= 0).all()


def check_judged(trace: Trace) -> None:
    """The account adds up, no rule fails, and the report can be written in all forms."""
    recording = of_trace(trace)
    if not recording.loops:
        return
    ledger = build_ledger(Profiled(recording), UNKNOWN)
    findings, skipped = judge(ledger, UNKNOWN, strict=True)
    assert sum(a.ns for a in ledger.accounts) == pytest.approx(ledger.wall, rel=0.01, abs=2)
    for found in findings:
        assert 0 <= found.saving.low_ns <= found.saving.expected_ns <= found.saving.ceiling_ns
    report = build(ledger, None, findings, skipped=skipped)
    assert to_json(report)
    assert all(char == "\n" or char.isprintable() for char in render(report))


def fuzz(num_cases: int, seed: int) -> int:
    """Read this many broken files; returns how many still gave a Trace."""
    rng, files = random.Random(seed), seeds()
    num_read = 0
    for case in range(num_cases):
        data = broken(rng.choice(files), rng)
        try:
            trace = read_stream(io.BytesIO(data), len(data), "fuzz.json", LIMITS)
        except TraceError as error:
            assert str(error).startswith("fuzz.json") and "\n" not in str(error)
            continue
        except Exception as error:
            raise AssertionError(f"case {case} of seed {seed}: {data!r}") from error
        try:
            check_sound(trace)
            check_judged(trace)
        except Exception as error:
            raise AssertionError(f"case {case} of seed {seed}: {data!r}") from error
        num_read += 1
    return num_read


@pytest.mark.parametrize("block", [300, 4 << 20])
def test_a_few_broken_files(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "BLOCK", block)
    num_read = fuzz(150, seed=block)
    assert 30 < num_read < 150


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_thousand_broken_files(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "BLOCK", (300, 4 << 20)[seed % 2])
    assert fuzz(10_000, seed) > 2_000
