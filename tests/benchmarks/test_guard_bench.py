"""The guard's bench: its table of sabotages, the switch that they ask, and its arithmetic on rows made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks import guard, guard_sabotages
from benchmarks.guard_sabotages.switch import Clock, instead
from benchmarks.guard_table import bars, rejected, table

STAMP = {"date": "D", "cpu": "C", "cores": 4, "python": "P", "torch": "T", "gobrrr": "G"}


def row(kind: str, verdict: str, onset: int | None = None, **more: Any) -> dict[str, Any]:
    green = verdict in ("exact", "equivalent", "bounded")
    return {"kind": kind, "name": "n", "program": "p", "onset": onset, "verdict": verdict, "green": green, "reason": "",
            "seconds": 1.0, "cpu_seconds": 1.0, **more}  # fmt: skip


def met(*rows: dict[str, Any]) -> list[bool]:
    return [bar["met"] for bar in bars(list(rows)).values()]


def test_forty_are_known_twenty_are_new_and_all_are_asked_at_drawn_onsets() -> None:
    known = [fault for fault in guard_sabotages.TABLE.values() if fault.known]
    assert len(known) == 40 and len(guard_sabotages.TABLE) >= 60
    drawn: dict[str, list[int]] = {}
    for case in guard._cases(None):
        if case.onset is not None:
            drawn.setdefault(case.name, []).append(case.onset)
    assert set(drawn) == set(guard_sabotages.TABLE)
    for name, onsets in drawn.items():
        assert len(onsets) >= 3 and min(onsets) <= 1 and max(onsets) <= guard_sabotages.TABLE[name].latest, name
    assert guard._cases(None) == guard._cases(None)
    assert {case.onset for case in guard._cases(7)} == {7, None}


def test_a_sabotage_is_a_strangers_remedy_of_its_name_and_onset() -> None:
    made = guard_sabotages.half_data__12
    assert made.name == "sabotage.half_data.12" == guard.Case("sabotages", "half_data", "text", 12).remedy
    assert made.safety == "order"
    with pytest.raises(AttributeError):
        _ = guard_sabotages.no_such__3


def test_what_is_patched_acts_from_the_onset_on(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = SimpleNamespace(double=lambda x: 2 * x)
    instead(owner, "double", lambda plain: lambda x: plain(x) + 1)
    monkeypatch.setattr(Clock, "onset", 3)
    monkeypatch.setattr(Clock, "now", 2)
    assert owner.double(5) == 10
    monkeypatch.setattr(Clock, "now", 3)
    assert owner.double(5) == 11


def test_bars_are_missed_by_a_green_sabotage_one_that_did_not_run_a_red_control_or_refusals() -> None:
    caught, control, kept = row("sabotages", "wrong", 3), row("sabotages", "exact"), row("honest", "equivalent")
    assert met(caught, control, kept) == [True] * 4
    assert met(caught, row("sabotages", "equivalent", 9), control, kept) == [False, True, True, True]
    died = row("sabotages", "unverified", 3, reason="the program could not be watched: exit code 1")
    assert met(died, control, kept) == [True, False, True, True]
    assert met(caught, row("sabotages", "wrong"), kept) == [True, True, False, True]
    assert met(caught, control, *[kept] * 19, row("honest", "changed")) == [True] * 4
    assert met(caught, control, *[kept] * 18, row("honest", "changed")) == [True, True, True, False]


def test_only_what_took_hold_counts_and_a_net_that_parts_from_itself_may_be_unverified() -> None:
    lost = row(
        "honest", "unverified", reason="the program could not be watched: compile never took hold in this program"
    )
    assert bars([lost])["at most 1 in 20 honest remedies rejected"]["value"] == "0 of 0"
    assert rejected(row("honest", "unverified")) and rejected(row("honest", "changed", program="high_rate"))
    assert not rejected(row("honest", "unverified", program="high_rate"))


def test_the_table_names_onset_verdict_and_cost() -> None:
    rows = [row("sabotages", "wrong", 3), row("sabotages", "exact", 9), row("honest", "changed", reason="a | b"),
            row("cost", "equivalent", cpu_seconds=7.5)]  # fmt: skip
    text = table({**STAMP, "bars": bars(rows), "cases": rows})
    assert "3 wrong, **9 exact**" in text and "| **changed** | 1.0 | a / b |" in text and "| 1.0 | 7.5 |" in text


def test_names_and_programs_choose_together() -> None:
    cases = [guard.Case("honest", name, net) for name in ("compile", "malloc_thresholds") for net in ("deep", "noisy")]
    assert guard._chosen(cases, set()) == cases
    assert guard._chosen(cases, {"compile"}) == cases[:2] and guard._chosen(cases, {"noisy"}) == cases[1::2]
    assert guard._chosen(cases, {"noisy", "compile"}) == [cases[1]]
