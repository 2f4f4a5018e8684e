"""Lines at which the loop stands: what waits, what writes, and what is neither."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from gobrrr.capture.windows.sampler import Sampler, ThreadCalls
from gobrrr.ledger.model.ledger import LineGroup, StepStats
from gobrrr.recording.model.event_kinds import RUNS, UNKNOWN, WAITS, WRITES
from gobrrr.recording.model.facts import Facts, Span
from gobrrr.system.descriptors import Held
from tests.support.handmade import MS, Case, op
from tests.support.rule_lines import LOOP, host, line

CROWD = Facts(process_load=0.2, other_load=1.9, waiting_load=1.0)
NEXT = Span("train.py", 72, "main")


def seen(
    ms: float = 20.0, held: float = 0.0, writing: float = 0.0, written: float = 0.0, **fields: object
) -> LineGroup:
    """A line of which the system said what it did: ms held, ms in writes, MB."""
    made = line(ms, LOOP, **fields)  # type: ignore[arg-type]
    return replace(made, held=held * MS, writing=writing * MS, written=written * 1e6)


def codes(*lines: LineGroup, facts: Facts | None = None, **fields: object) -> list[str]:
    case = Case(ms=100, facts=facts or Facts(), extra={"lines": lines}, **fields)  # type: ignore[arg-type]
    return [code for code in ("BRR302", "BRR304", "BRR315") for _ in case.raised(code)]


@pytest.mark.parametrize("facts", [Facts(), CROWD])
@pytest.mark.parametrize(
    ("there", "told"),
    [
        (seen(held=19), "BRR315"),
        (seen(held=19, queue__Queue__get=19.0), "BRR315"),
        (seen(held=19, subprocess__run=20.0, warnings__warn=1.0), "BRR315"),
        (seen(held=19, phase="forward"), "BRR315"),
        (seen(writing=15), "BRR304"),
        (seen(held=2, writing=9, written=0.01), "BRR304"),
        (seen(held=4, writing=16), "BRR304"),
        (seen(held=11, writing=7), "BRR315"),
        (seen(held=4, writing=5), ""),
        (seen(held=8, writing=8), "BRR304"),  # as much in writes as elsewhere
        (seen(written=1.9), ""),  # 0.095 bytes per ns
        (seen(held=19, some__library__call=9.0, queue__Queue__get=11.0), "BRR315"),
        (seen(written=40), "BRR304"),  # into the system's cache: nothing holds it
        (seen(written=1), ""),  # 0.05 bytes per ns: Python that makes text
        (seen(held=9), ""),
        (seen(held=19, some__library__call=20.0), ""),  # its own business
        (seen(ms=2, held=2), ""),
        (seen(held=19, phase="data"), ""),
    ],
)
def test_what_waits_and_what_writes(there: LineGroup, told: str, facts: Facts) -> None:
    assert codes(there, facts=facts) == ([told] if told else [])


def test_a_line_of_ops_does_not_stand() -> None:
    assert codes(seen(held=19), ops=(op("mm", (8, 8), ms=1, where=(LOOP,)),)) == ["BRR315"]
    assert codes(seen(held=19), ops=(op("mm", (8, 8), ms=3, where=(LOOP,)),)) == []


def test_where_a_file_is_opened_and_closed_belongs_to_its_writing() -> None:
    opened = replace(seen(held=12), where=(NEXT,))
    assert codes(seen(writing=18), opened) == ["BRR304", "BRR304"]
    elsewhere = replace(opened, where=(Span("train.py", 72, "other"),))
    assert sorted(codes(seen(writing=18), elsewhere)) == ["BRR304", "BRR315"]


def test_a_neighbour_of_writing_that_is_hardly_held_computes() -> None:
    assert codes(seen(writing=18), replace(seen(held=2), where=(NEXT,), held=1.9 * MS)) == ["BRR304"]


def test_a_wait_that_writes_now_and_then_holds_the_time_of_both() -> None:
    (found,) = Case(ms=100, extra={"lines": (seen(held=11, writing=7),)}).raised("BRR315")
    assert found.evidence["time"].value == pytest.approx(18 * MS)


def test_blocked_outside_any_call_is_no_wait(tmp_path: Path) -> None:
    """A page that is read from its file: proc_pid_syscall(5) gives -1."""
    told = ThreadCalls(os.getpid())
    for words, kind in (
        ("-1 0x7ffd 0x7f11", RUNS),
        ("running", RUNS),
        ("1 0x1", WRITES),
        ("230 0x1", WAITS),
        ("", UNKNOWN),
    ):
        (tmp_path / "syscall").write_text(words)
        told._call = Held(os.open(tmp_path / "syscall", os.O_RDONLY))
        assert told.kind() == kind or told._writing is None
    told.close()


@pytest.mark.parametrize(("facts", "told"), [(Facts(), ["BRR315"]), (CROWD, [])])
def test_where_the_system_says_nothing_a_crowd_leaves_it_open(facts: Facts, told: list[str]) -> None:
    there = Case(ms=100, facts=facts, extra={"lines": (line(20, LOOP, waiting=True),), "host": (host(18, LOOP),)})
    assert [code for code in ("BRR304", "BRR315") if there.raised(code)] == told


def test_a_wait_promises_no_more_than_the_rest_of_the_step_can_hide() -> None:
    (found,) = Case(ms=100, extra={"lines": (seen(80, held=80),)}).raised("BRR315")
    assert found.saving.low_ns == pytest.approx(0.3 * 20 * MS)
    assert found.saving.expected_ns == pytest.approx(40 * MS)
    (short,) = Case(ms=100, extra={"lines": (seen(20, held=20),)}).raised("BRR315")
    assert short.saving.expected_ns == pytest.approx(20 * MS)


@pytest.mark.parametrize(("usual", "rare"), [(0.1, True), (0.4, False), (None, False)])
def test_what_only_long_steps_wait_for_is_of_the_mean_step(usual: float | None, rare: bool) -> None:
    """A sleep in every fourth step, scaled to the median one of 100 ms: of the mean one, 300 ms, it has 180."""
    slept = replace(seen(60, held=60), usual_share=usual)
    case = Case(ms=100, step=StepStats(count=100, plain_count=50, mean_ns=300 * MS), extra={"lines": (slept,)})
    (found,) = case.raised("BRR315")
    ms, beside = (180, 120) if rare else (60, 40)
    assert found.rare == rare and f"waits {ms}" in found.message and "(60.0 %) per step" in found.message
    assert ("on average" in found.message) == rare
    assert found.saving.expected_ns == pytest.approx(beside * MS)


def kinds(work: Callable[[], object]) -> list[int]:
    """What a sampler of this thread said while it worked."""
    if ThreadCalls(os.getpid()).kind() == UNKNOWN:
        pytest.skip("this system does not say what holds a thread")
    sampler = Sampler(threading.get_ident(), 0.002, lambda file: file == __file__)
    sampler.start()
    until = time.perf_counter() + 0.4
    while time.perf_counter() < until:
        work()
    sampler.stop()
    return sampler.held


def most(found: list[int], kind: int) -> bool:
    return len(found) > 3 and found.count(kind) > 0.7 * len(found)


def test_a_sleep_a_lock_and_a_pipe_are_waits_and_python_is_none() -> None:
    taken, (reader, writer) = threading.Lock(), os.pipe()
    taken.acquire()
    assert most(kinds(lambda: time.sleep(0.05)), WAITS)
    assert most(kinds(lambda: taken.acquire(timeout=0.05)), WAITS)
    assert most(kinds(lambda: sum(range(10_000))), RUNS)
    timer = threading.Timer(0.3, os.write, (writer, b"x"))
    timer.start()
    once = iter([lambda: os.read(reader, 1)])
    assert most(kinds(lambda: next(once, lambda: time.sleep(0.01))()), WAITS)
    timer.join()
    os.close(reader), os.close(writer)


def test_a_full_pipe_is_a_write() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    timer = threading.Timer(0.3, os.read, (reader, 1 << 20))
    timer.start()
    once = iter([lambda: os.write(writer, b"x" * 4096)])
    found = kinds(lambda: next(once, lambda: time.sleep(0.01))())
    timer.join()
    assert found.count(WRITES) > 0.5 * len(found)
    os.close(reader), os.close(writer)


def test_written_bytes_are_counted_for_this_thread(tmp_path: Path) -> None:
    held = ThreadCalls(os.getpid())
    before = held.written()
    if before < 0:
        pytest.skip("this system does not count them")
    (tmp_path / "x").write_bytes(bytes(1 << 20))
    assert held.written() - before >= 1 << 20
    other = threading.Thread(target=lambda: (tmp_path / "y").write_bytes(bytes(1 << 20)))
    now = held.written()
    other.start()
    other.join()
    assert held.written() - now < 1 << 20
    held.close()
    held.close()
    assert held.written() == -1 and held.kind() == UNKNOWN
