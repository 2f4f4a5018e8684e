"""Library calls that samples are made with: named where a cheaper way is known, and only those."""

from __future__ import annotations

import pytest

from gobrrr.rules.data.library_calls import KNOWN, LEAST_NAMED
from tests.rules.test_keeping import GETITEM, computing
from tests.support.rule_lines import LOOP, line


@pytest.mark.parametrize(
    ("call", "what", "instead"),
    [
        ("csv__reader", "parsing text", "Parse all records once"),
        ("librosa__core__load", "working on sound", "Resample once"),
        ("gzip__GzipFile__read", "unpacking", "Unpack once"),
    ],
)
def test_a_known_call_is_named_with_its_share_and_what_to_do_instead(call: str, what: str, instead: str) -> None:
    case = computing(iter_ns=(1000,))
    case.extra["lines"] = (line(30, GETITEM, LOOP, phase="data", **{call: 24.0}), line(10, LOOP, phase="data"))
    (found,) = case.raised("BRR401")
    assert f"60.0 % of it {what}" in found.message and found.evidence[what].value == pytest.approx(0.6)
    assert instead in found.advice and "Compute it once" in found.advice, "the rule's own words stay"


def test_the_costliest_kind_is_named_and_what_is_little_is_not() -> None:
    case = computing(iter_ns=(1000,))
    case.extra["lines"] = (line(40, GETITEM, LOOP, phase="data", yaml__load=13.0, librosa__load=16.0),)
    (found,) = case.raised("BRR401")
    assert "sound" in found.message and "text" not in found.message
    case.extra["lines"] = (line(40, GETITEM, LOOP, phase="data", yaml__load=40 * LEAST_NAMED - 0.1),)
    assert "text" not in case.raised("BRR401")[0].message
    case.extra["lines"] = (line(40, GETITEM, LOOP, phase="data", mine__yaml__load=40.0),)
    assert not any(known.what in case.raised("BRR401")[0].message for known in KNOWN)


def test_keeping_comes_first_where_samples_come_again() -> None:
    case = computing()
    case.extra["lines"] = (line(40, GETITEM, LOOP, phase="data", yaml__load=39.0),)
    advice = case.raised("BRR401")[0].advice
    assert advice.index("[dataset[i] for i in") < advice.index("Parse all records")


def test_in_a_collate_function_they_are_named_too() -> None:
    case = computing(collate="stacked", collate_span=GETITEM)
    case.extra["lines"] = (line(40, GETITEM, LOOP, phase="data", yaml__load=39.0),)
    (found,) = case.raised("BRR403")
    assert "of it parsing text" in found.message and "Parse all records once" in found.advice
