"""The JSON of a report: the shape that others read, exact there and back, and hostile files refused."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.errors import TraceError
from gobrrr.recording.model.facts import Span
from gobrrr.report.forms.json import MAX_BYTES, from_json, to_json
from gobrrr.rules.model.finding import Quantity, Saving
from gobrrr.rules.verdict.report import Report
from tests.support import report_samples as samples

REPORTS = {"starved": samples.starved, "balanced": samples.balanced, "unreliable": samples.unreliable}


def test_the_frozen_shape() -> None:
    """Names, types and meaning of gobrrr.report/1: others read these, so they never change."""
    report = json.loads(to_json(samples.starved()))
    assert report["schema"] == "gobrrr.report/1"
    assert set(report["verdict"]) == {"bound", "sentence"}
    assert {name: report["step"][name] for name in ("count", "wall_ns", "plain_wall_ns")} == {
        "count": 65, "wall_ns": 88_040_000, "plain_wall_ns": 62_000_000,
    }  # fmt: skip
    assert report["device"] is None
    assert report["ledger"][0] == {"account": "data_wait", "ns": 41_200_000, "share": 0.664516}
    finding = report["findings"][0]
    assert {name: finding[name] for name in ("code", "name", "bound", "severity")} == {
        "code": "BRR401", "name": "data-wait", "bound": "data", "severity": "critical",
    }  # fmt: skip
    assert finding["saving"] == {"low_ns": 12_000_000, "expected_ns": 30_000_000, "ceiling_ns": 41_200_000}
    assert finding["where"] == [{"file": "train.py", "line": 41, "function": "main"}]
    assert finding["evidence"]["wait"] == {"value": 41_200_000.0, "unit": "ns"}
    assert finding["remedies"] == ["loader-workers", "loader-prefetch"]


def test_nanoseconds_are_integers() -> None:
    def check(value: object, key: str = "") -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                check(inner, name)
        elif isinstance(value, list):
            for inner in value:
                check(inner, key)
        elif key == "ns" or key.endswith("_ns"):
            assert value is None or isinstance(value, int)  # what is not known is null

    check(json.loads(to_json(samples.starved())))
    assert all(isinstance(ns, int) for _, ns in json.loads(to_json(samples.starved()))["phases"])


@pytest.mark.parametrize("name", REPORTS)
def test_there_and_back(name: str) -> None:
    data = to_json(REPORTS[name]())
    assert data.endswith(b"}\n")
    report = from_json(data)
    assert isinstance(report, Report)
    assert to_json(report) == data


def test_what_json_cannot_say() -> None:
    """Infinity and surrogates: a rule's slip must not make the whole report unreadable."""
    odd = samples.finding(
        where=(Span("caf\udce9.py", 1, "f"),), saving=Saving(float("nan"), float("inf"), 1.0),
        evidence={"ratio": Quantity(float("inf"), "1")},
    )  # fmt: skip
    report = msgspec.structs.replace(samples.starved(), findings=(odd,))
    again = from_json(to_json(report)).findings[0]
    assert again.where[0].file == "caf?.py"
    assert again.saving == Saving(0, 0, 1)
    assert again.evidence["ratio"].value == "inf"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"[]", b"{", b"{}", b"\xff\xfe", b'{"schema": "gobrrr.report/1"}', b"NaN", b"[" * 100_000,
        b'{"verdict": {"bound": 1, "sentence": "x"}, "step": {"count": 1, "wall_ns": 1, "plain_wall_ns": 1}}',
        b'{"verdict": {"bound": "data", "sentence": "x"}, "step": {"count": 1e999, "wall_ns": 1, "plain_wall_ns": 1}}',
        b'{"verdict": {"bound": "data", "sentence": "x"}, "step": {"count": 1' + b"0" * 400
        + b', "wall_ns": 1, "plain_wall_ns": 1}}',
        b'{"schema": "gobrrr.report/9", "verdict": {"bound": "data", "sentence": "x"}, '
        b'"step": {"count": 1, "wall_ns": 1, "plain_wall_ns": 1}}',
    ],
    ids=range(13),
)  # fmt: skip
def test_what_is_not_a_report_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(TraceError, match=r"^some\.json: "):
        from_json(data, "some.json")


@given(st.data())
def test_a_flipped_byte_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(to_json(samples.balanced()))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    try:
        from_json(bytes(whole))
    except TraceError:
        pass


def test_a_file_far_too_long_is_not_even_parsed() -> None:
    with pytest.raises(TraceError, match="a report has at most 67108864"):
        from_json(b" " * (MAX_BYTES + 1))


def test_unknown_fields_are_ignored() -> None:
    """More fields may join: an older gobrrr reads a newer report of the same schema."""
    fields = json.loads(to_json(samples.starved()))
    fields["later"] = {"x": 1}
    assert from_json(json.dumps(fields).encode()).verdict == samples.starved().verdict
