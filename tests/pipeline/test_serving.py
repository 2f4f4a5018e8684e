"""Steps that a serving engine marks: prefill and decode told apart, with what is in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.ledger.steps.serving import serving_classes
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.pipeline.traces import diagnosed
from gobrrr.recording.model.serving import Iteration, iteration, iterations
from gobrrr.recording.trace_files.limits import DEFAULT
from gobrrr.recording.trace_files.sources import Source
from gobrrr.report.text.report import render
from tests.pipeline.grown import Grown, grow


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("execute_context_2(512)_generation_30(30)", Iteration(2, 512, 30, 30)),
        ("execute_context_0(0)_generation_30(60)", Iteration(0, 0, 30, 60)),
        (
            "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)",
            Iteration(9, 8155, 37, 37),
        ),
        ("execute_new_3_cached_12", Iteration(3, None, 12, None)),
        ("execute_context_2(512)_generation_30(30) and more", None),
        ("execute_context_2(-5)_generation_30(30)", None),
        (f"execute_context_{'9' * 5000}(1)_generation_1(1)", None),
        ("execute_model", None),
        ("step[EXTEND bs=2 toks=14721]", Iteration(2, 14721, 0, 0)),
        ("step[EXTEND bs=2 toks=147 c_sq=147 c_sqsq=1087 c_sqsk=12000 c_sk=162]", Iteration(2, 147, 0, 0)),
        ("step[DECODE bs=64]", Iteration(0, 0, 64, 64)),
        ("step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=26 g_sk=13]", Iteration(0, 0, 64, 128)),
        ("step[MIXED bs=5 c=2 g=3 c_sq=6144 c_sk=7144 g_sq=3 g_sk=6144]", Iteration(2, 6144, 3, 3)),
        ("step[MIXED bs=2]", Iteration(None, None, None, None)),
        ("step[TARGET_VERIFY bs=8]", Iteration(0, 0, 8, None)),
        ("step[DRAFT_EXTEND bs=8]", None),
        ("step[IDLE bs=0]", None),
        ("step[DECODE bs=64", None),
        ("step[DECODE bs=x]", None),
        ("step[DECODE]", None),
        ("[Executor] _forward_step 60000: 0 ctx reqs, 0 ctx tokens, 32 gen reqs", Iteration(0, 0, 32, None)),
        ("[Executor] _forward_step 7: 2 ctx reqs, 5 gen reqs", Iteration(2, None, 5, None)),
        ("[Executor] _forward_step: 2 ctx reqs, 0 gen reqs", Iteration(2, None, 0, None)),
        ("prefill[bs=2 tok=14721 ctx=[7803, 6918] sqsq=10 sqsk=11 sk=16221]", Iteration(2, 14721, 0, 0)),
        ("decode[bs=117/128 tok=117 d=117]", Iteration(0, 0, 117, 117)),
        ("decode[bs=32 tok=128 d=32 spec=3]", Iteration(0, 0, 32, 128)),
        ("decode[bs=128 p=2 d=126]", Iteration(2, None, 126, None)),
        ("decode[bs=128 tok=384 p=2 d=126 sqsq=13 tbo=1]", Iteration(2, 0, 126, 384)),
    ],
)
def test_what_a_mark_says(name: str, expected: Iteration | None) -> None:
    assert iteration(name) == expected


@pytest.mark.parametrize(
    ("each", "kind", "tokens"),
    [
        (Iteration(0, 0, 8, 8), "decode", 8), (Iteration(2, 700, 0, 0), "prefill", 700),
        (Iteration(2, 700, 8, 8), "mixed", 708), (Iteration(2, 700, 8, None), "mixed", None),
        (Iteration(None, None, None, None), "mixed", None),
        (Iteration(1, None, 0, None), "prefill", None),
    ],
)  # fmt: skip
def test_kinds_of_steps(each: Iteration, kind: str, tokens: int | None) -> None:
    assert (each.kind, each.tokens) == (kind, tokens)


def test_a_draft_models_steps_are_parts_of_the_engines() -> None:
    names = ["step[EXTEND bs=1 toks=9]", "step[DECODE bs=4]", "aten::mm"]
    assert iterations(names) == {0: Iteration(1, 9, 0, 0), 1: Iteration(0, 0, 4, 4)}
    assert iterations([*names, "step[TARGET_VERIFY bs=4]"]) == {0: Iteration(1, 9, 0, 0), 3: Iteration(0, 0, 4, None)}


def test_a_rate_needs_all_tokens_and_some_time() -> None:
    known, unknown = Iteration(0, 0, 4, 4), Iteration(0, None, 4, None)
    assert serving_classes([10**9, 10**9], [known, known])[0].tokens_per_s == 4
    assert serving_classes([10**9, 10**9], [known, unknown])[0].tokens_per_s is None
    assert serving_classes([0, 0], [known, known])[0].tokens_per_s is None
    assert serving_classes([1, 1, 1], [Iteration(n, 1, 0, 0) for n in (1, 2, 9)])[0].prompts == 2


def served(marks: list[tuple[str, int]]) -> Grown:
    """Steps of a mark and so many kernels of 100 us each, with 40 us of scheduling after each."""
    trace = Grown(device=2)
    for name, kernels in marks:
        begin = trace.now
        for _ in range(kernels):
            trace.op(12, 100)
        trace.sync(3)
        trace.row("user_annotation", name, begin, trace.now)
        trace.python(40)
    return trace


DECODE, MIXED = "execute_context_0(0)_generation_4(4)", "execute_context_2(300)_generation_2(2)"


def test_decode_and_prefill_are_told_apart_with_their_tokens(tmp_path: Path) -> None:
    trace = served([(DECODE, 5), (DECODE, 5), (MIXED, 40), (DECODE, 5), (DECODE, 5)])
    report = diagnosed(Source(str(trace.write(tmp_path / "trace.json"))), UNKNOWN, DEFAULT)
    assert (report.step.count, report.step.kind, report.step.unmarked) == (5, "inference", False)
    decode, mixed = report.serving
    assert (decode.kind, decode.count, decode.prompts, decode.sequences, decode.tokens) == ("decode", 4, 0, 4, 4)
    assert (mixed.kind, mixed.count, mixed.prompts, mixed.sequences, mixed.tokens) == ("mixed", 1, 2, 2, 302)
    assert decode.step_ns == pytest.approx(5 * 100e3 + 40e3, rel=0.1)  # the scheduling behind it is its own
    assert mixed.step_ns == pytest.approx(40 * 100e3 + 40e3, rel=0.1)
    assert mixed.tokens_per_s == pytest.approx(302 / (mixed.step_ns / 1e9))
    page = render(report, width=120)
    assert "4 decode steps of" in page and "1 mixed step of" in page and "2 prompts, 2 sequences, 302 tokens" in page


def test_prompts_and_sequences_that_are_not_told_apart(tmp_path: Path) -> None:
    trace = served([("step[MIXED bs=7]", 9)] * 3)
    report = diagnosed(Source(str(trace.write(tmp_path / "trace.json"))), UNKNOWN, DEFAULT)
    assert [(each.kind, each.count, each.prompts, each.sequences) for each in report.serving] == [
        ("mixed", 3, None, None)
    ]
    assert "3 mixed steps of " in render(report, width=120)


@pytest.mark.parametrize("inside", [DECODE, "execute_new_0_cached_4", "execute_7_context_0(sq0)_generation_4(sq4sk90)"])
def test_marks_inside_of_marks_are_no_steps(inside: str, tmp_path: Path) -> None:
    trace = served([(DECODE, 5)] * 6)
    for mark in [e for e in trace.events if e["name"] == DECODE]:
        trace.events.append(mark | {"name": inside, "ts": mark["ts"] + 1, "dur": mark["dur"] - 2})
    report = diagnosed(Source(str(trace.write(tmp_path / "trace.json"))), UNKNOWN, DEFAULT)
    assert [(each.kind, each.count, each.tokens) for each in report.serving] == [("decode", 6, 4)]


@pytest.mark.parametrize("idle", [0, 30_000])
def test_waiting_for_requests_is_no_cost_of_a_step(idle: int, tmp_path: Path) -> None:
    trace = Grown(device=2)
    for _ in range(4):
        for step in served([(DECODE, 5)] * 6).events:
            trace.events.append(step | {"ts": step["ts"] + trace.now})
        trace.now = max(e["ts"] + e["dur"] for e in trace.events) + 40 + idle
        for event in trace.events:
            for key in ("External id", "correlation"):
                if key in event["args"]:
                    event["args"][key] += 1000  # of the next six steps are others
    report = diagnosed(Source(str(trace.write(tmp_path / "trace.json"))), UNKNOWN, DEFAULT)
    (decode,) = report.serving
    assert decode.count == 24 and decode.step_ns == pytest.approx(560e3, rel=0.1)
    assert decode.tokens_per_s == pytest.approx(4 / 560e-6, rel=0.1)
    assert (report.verdict.bound == "unreliable") is bool(idle)


def test_a_profilers_own_steps_come_before_an_engines_marks(tmp_path: Path) -> None:
    trace = grow(3, "sync")
    trace.row("user_annotation", DECODE, trace.steps[1][0] + 5, trace.steps[1][0] + 300)
    report = diagnosed(Source(str(trace.write(tmp_path / "trace.json"))), UNKNOWN, DEFAULT)
    assert report.step.count == len(trace.steps) and report.serving == () and report.verdict.bound == "sync"


def test_marks_without_tokens_have_no_rate(tmp_path: Path) -> None:
    trace = served([("execute_new_1_cached_0", 9), ("execute_new_0_cached_1", 3), ("execute_new_0_cached_1", 3)])
    report = diagnosed(Source(str(trace.write(tmp_path / "trace.json"))), UNKNOWN, DEFAULT)
    assert [(each.kind, each.tokens_per_s) for each in report.serving] == [("decode", None), ("prefill", None)]
    assert "tokens" not in render(report, width=120)


def test_a_training_serves_nobody(tmp_path: Path) -> None:
    trace = served([("train step", 5), ("train step", 5)])
    report = diagnosed(Source(str(trace.write(tmp_path / "trace.json"))), UNKNOWN, DEFAULT)
    assert report.serving == () and report.step.unmarked


@pytest.mark.parametrize("name", ["step[DECODE bs=3x]", "step[DECODE bs=1234567890123]", "decode[bs=1_000]",
                                  "decode[bs=1 tok=1 p=5]"])  # fmt: skip
def test_a_mark_that_cannot_be_read_is_none(name: str) -> None:
    assert iteration(name) is None
