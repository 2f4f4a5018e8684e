"""Plain and watched, a program computes, shows and leaves behind the very same, bit for bit."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from gobrrr.recording.model.event_kinds import BACKWARDS
from gobrrr.recording.run_folder.noted_facts import facts_of
from gobrrr.recording.run_folder.run import Recording, load_run
from tests.transparency.pairs import Ran, differences, run

QUICK = ("mlp", "workers", "sequences", "fused")
SLOW = (
    "evaluated", "transforms", "attribution", "frameless", "profilers", "counts", "processes", "by_hand", "transformed",
    "accumulation", "gan", "inference", "compiled", "instrumented", "functional", "hooked", "stale", "scripted",
)  # fmt: skip
WINDOWS = {"profile", "sample", "count"}  # and "flow", where the program is not over by then
# They profile themselves again and again: each time the sampled window, the longest, makes way.
MAKE_WAY = {"instrumented", "profilers"}


@functools.cache
def watched_run(program: str, folder: Path) -> Ran:
    """One run for all tests that ask something of it."""
    return run(f"{program}.py", folder / program / "watched", True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs."""
    return tmp_path_factory.mktemp("runs")


def both(program: str, folder: Path) -> tuple[Ran, Ran]:
    """The program plain, then watched, both finished without complaint of their own."""
    plain = run(f"{program}.py", folder / program / "plain", False)
    assert plain.code == 0, plain.err.decode()
    return plain, watched_run(program, folder)


def recording_of(ran: Ran) -> Recording:
    """The watched run's one recording, watched to its end."""
    (recording,) = load_run(ran.folder)
    assert recording.ended == "exit", recording.missing
    return recording


@pytest.mark.parametrize("program", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_watching_changes_nothing(program: str, runs: Path) -> None:
    plain, watched = both(program, runs)
    assert watched.code == 0, watched.err.decode()
    assert (watched.out, watched.err) == (plain.out, plain.err)
    assert plain.seen["num_losses"] > 100
    assert differences(plain.seen, watched.seen) == []
    recording = recording_of(watched)
    assert not [line for line in recording.missing if "failed inside gobrrr" in line]
    expected = WINDOWS - {"sample"} if program in MAKE_WAY else WINDOWS
    assert {window.kind for window in recording.windows if window.complete} >= expected


def test_updates_inside_a_backward_pass_are_one_step(runs: Path) -> None:
    """20 of them in each; the last pass has no end, and windows have theirs outside of all."""
    (loop,) = recording_of(watched_run("fused", runs)).loops
    assert (loop.kind, len(loop.steps)) == (BACKWARDS, 128)


def test_lengths_are_seen_in_a_program_whose_batches_are_untouched(runs: Path) -> None:
    """So that the comparison above compares something."""
    watched = watched_run("sequences", runs)
    found = facts_of(recording_of(watched), []).lengths
    assert len(found) >= 3 and all(each.fits for each in found)


def test_a_program_that_closes_our_descriptors_keeps_its_files(runs: Path) -> None:
    """Watching ends there, quietly; numbers that were ours are the program's now."""
    plain, watched = both("daemon", runs)
    assert watched.code == 0, watched.err.decode()
    assert (watched.out, watched.err) == (plain.out, plain.err)
    assert plain.seen["own"] == [4] * 40
    assert differences(plain.seen, watched.seen) == []
    (recording,) = load_run(watched.folder)
    assert recording.ended != "exit"
    assert any("Bad file descriptor" in text for text in recording.missing)


def test_a_full_stack_is_the_programs_alone(runs: Path) -> None:
    """Where nothing more may be called our hooks give way: no error of ours is in the program's RecursionError."""
    plain, watched = both("full", runs)
    assert watched.code == 0, watched.err.decode()
    assert watched.out == plain.out
    # A generator of torch's that is closed where the stack is full is told by the interpreter, now and then.
    assert b"gobrrr/capture" not in watched.err
    assert differences(plain.seen, watched.seen) == []
    assert "NoneType" in plain.seen["told"]
