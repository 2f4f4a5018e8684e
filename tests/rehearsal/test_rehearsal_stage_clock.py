"""How the stage takes turns, on a clock of its own: nothing is really run."""

from __future__ import annotations

from typing import Any

import pytest

from gobrrr.rehearsal import stage


class World:
    """A torch that counts its threads, and a clock that moves by what a call takes."""

    def __init__(self, ns: dict[str, int]) -> None:
        self.ns, self.now, self.threads = ns, 0, 1
        self.log: list[tuple[str, int]] = []
        self.cold = False

    def set_num_threads(self, count: int) -> None:
        self.cold = self.cold or count != self.threads
        self.threads = count

    def ones(self, count: int) -> World:
        return self

    def add_(self, value: int) -> None:
        self.log.append(("others", self.threads))
        self.now += 10**7

    def make(self, torch: Any, spec: dict[str, Any], device: str) -> Any:
        def run() -> None:
            self.log.append((spec["name"], self.threads))
            self.now += self.ns[spec["name"]] + (10**9 if self.cold else 0)  # new threads take their time
            self.cold = False

        return run

    def monotonic(self) -> float:
        return self.now / 1e9

    def perf_counter_ns(self) -> int:
        return self.now

    thread_time_ns = perf_counter_ns


def played(monkeypatch: pytest.MonkeyPatch, world: World, parts: int = 1, seconds: float = 1.0, **then: Any) -> Any:
    monkeypatch.setattr(stage, "make", world.make)
    monkeypatch.setattr(stage.free_memory, "refusal", lambda *asked: "")
    monkeypatch.setattr(stage, "time", world)
    script = {"device": "cpu", "threads": 1, "precision": "highest"}
    scene = {"parts": [{"today": {"name": "today"}, "then": {"name": "then", **then}, "ns": 1.0}] * parts}
    return stage._played(world, script, scene, seconds)


def test_the_sides_take_turns_in_coming_first(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"today": 10**8, "then": 10**8})
    assert len(played(monkeypatch, world)["rounds"]) == 5
    names = [name for name, _ in world.log]
    assert names[:4] == ["today", "today", "then", "then"], "both are made ready first"
    assert names[4:12] == ["today", "then", "then", "today"] * 2


def test_threads_that_were_just_made_cost_neither_side(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"today": 10**8, "then": 5 * 10**7})
    rounds = played(monkeypatch, world, seconds=30.0, threads=4)["rounds"]
    assert {tuple(pair) for (pair,) in rounds} == {(1e8, 5e7)}
    assert {threads for name, threads in world.log if name == "then"} == {4} and world.threads == 1


def test_short_calls_are_repeated_until_the_clock_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"today": 1000, "then": 10**8})
    played(monkeypatch, world)
    assert [name for name, _ in world.log].count("today") > stage.CALL_NS // 1000


def test_an_update_comes_after_what_fills_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once per sample, and outside of what is timed."""
    world = World({"today": 1000, "then": 500})
    monkeypatch.setattr(stage, "make", world.make)
    monkeypatch.setattr(stage.free_memory, "refusal", lambda *asked: "")
    monkeypatch.setattr(stage, "time", world)
    script = {"device": "cpu", "threads": 1, "precision": "highest"}
    sides = {side: {"name": side, "make": "optimizer"} for side in ("today", "then")}
    found = stage._played(world, script, {"parts": [{**sides, "ns": 1.0}]}, 0.2)
    assert {tuple(pair) for (pair,) in found["rounds"]} == {(1000, 500)}
    assert [name for name, _ in world.log][4:8] == ["others", "today", "others", "then"]


def test_parts_are_taken_in_while_enough_rounds_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.2 s per round and part: eight rounds of two parts are 3.2 s."""
    rounds = played(monkeypatch, World({"today": 10**8, "then": 10**8}), parts=9, seconds=3.0)["rounds"]
    assert {len(each) for each in rounds} == {2}


def test_too_few_rounds_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = played(monkeypatch, World({"today": 10**9, "then": 10**9}), seconds=2.5)
    assert found["why"] == f"2 rounds in the time there was, {stage.MIN_ROUNDS} are needed"


def test_what_takes_ten_times_as_long_is_known_from_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, dead = (
        played(monkeypatch, World({"today": 10**8, "then": ns}), seconds=1.0) for ns in (9 * 10**8, 2 * 10**9)
    )
    assert "why" in slow and len(dead["rounds"]) == 1
