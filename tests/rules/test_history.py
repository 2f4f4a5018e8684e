"""Runs one after another: which are compared with which, since when a step is longer, and what changed between them."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.recording.model.setup import Setup
from gobrrr.rules.verdict.history import Change, History, Kept, Run, baseline, history
from gobrrr.rules.verdict.report import Report
from tests.rules.test_regression import crowded, report
from tests.support import report_samples as samples

COMMAND = ("/usr/bin/python", "train.py", "--batch", "64")
GIB = 1 << 30


def run(wall_ms: float = 100.0, *, peak: int | None = None, **changes: Any) -> Report:
    """A sound run of train.py whose step is sure within 1 %."""
    known = report(wall_ms, **{"command": COMMAND, "exit_code": 0, **changes})
    return known if peak is None else replace(known, memory=replace(known.memory, peak=peak))


def told(*reports: Report) -> tuple[Run, ...]:
    """The runs of the only program."""
    found = runs(*reports)
    assert len(found.programs) == 1
    return found.programs[0].runs


def runs(*reports: Report) -> History:
    return history("folder", [Kept(f"run-{number}", number, each) for number, each in enumerate(reports, 1)])


def since(found: tuple[Run, ...], what: str = "step_since") -> dict[int, float]:
    return {each.number: round(getattr(each, what).ratio, 2) for each in found if getattr(each, what)}


def test_a_step_is_longer_since_the_run_with_which_it_surely_became_so() -> None:
    found = told(run(100), run(101), run(99), run(132), run(131), run(133))
    assert since(found) == {4: 1.32}
    change = found[3].step_since
    assert change is not None and 1.27 < change.low < 1.31 and 1.33 < change.high < 1.37  # starts differ, by 1 %
    assert found[3].before == 3


@pytest.mark.parametrize(
    ("steps", "expected"),
    [((100, 104, 97, 103), {}), ((100, 80, 81), {2: 0.8}), ((100, 150, 100, 101), {}), ((100, 100, 150), {3: 1.5}),
     ((100, 100, 150, 70, 150), {5: 1.5}), ((109, 100, 109, 150, 109, 118, 119, 118), {}),
     (tuple(range(100, 142, 3)), {11: 1.16}), ((100,), {})],
)  # fmt: skip
def test_levels(steps: tuple[float, ...], expected: dict[int, float]) -> None:
    """A drift of 3 % at a time is found too: against the level's median run, not the run before."""
    assert since(told(*map(run, steps))) == expected


def test_of_the_newest_run_alone_it_is_not_known_whether_it_stays() -> None:
    first, second = (told(*map(run, steps))[2].step_since for steps in ((100, 100, 150), (100, 100, 150, 151)))
    assert first is not None and first.is_last and second is not None and not second.is_last


@pytest.mark.parametrize(("deviation", "most"), [(0.02, 0), (0.05, 2), (0.08, 8)])
def test_noise_between_starts_is_no_change(deviation: float, most: int) -> None:
    """Thirty equal runs, forty times, though each knows its own step within 1 %."""
    found = 0
    for seed in range(40):
        draw = random.Random(seed)
        runs_of = told(*(run(100 * math.exp(draw.gauss(0, deviation))) for _ in range(30)))
        found += any(each.step_since and not each.step_since.is_last for each in runs_of)
    assert found <= most


def test_what_is_within_its_interval_is_no_change() -> None:
    wide = run(130.0, step=report(130.0, 0.3).step)
    assert since(told(run(100), wide)) == {}


def test_a_peak_is_larger_since_the_run_with_which_it_grew_by_more_than_starts_differ() -> None:
    found = told(*(run(peak=int(GIB * share)) for share in (1.0, 1.02, 0.99, 1.2, 1.21)))
    assert since(found, "peak_since") == {4: 1.2}
    assert found[3].peak_change == Change(int(GIB * 1.2) / int(GIB * 0.99))


@pytest.mark.parametrize(
    ("odd", "state", "why"),
    [(run(300, exit_code=3), "failed", "it ended with 3"), (run(300, exit_code=-2), "cut", "told to end"),
     (run(300, verdict=samples.unreliable().verdict), "unreliable", samples.unreliable().verdict.sentence),
     (run(300, step=replace(report(300).step, plain_count=3)), "disturbed", "too few"),
     (run(300, findings=(crowded("warning", 0.5),)), "disturbed", "other processes kept 1.7 cores busy")],
)  # fmt: skip
def test_runs_that_cannot_be_relied_on_are_no_before(odd: Report, state: str, why: str) -> None:
    found = told(run(100), odd, run(101))
    assert found[1].state == state and why in found[1].why
    assert found[1].step_change is None and found[1].step_since is None
    assert found[2].before == 1 and since(found) == {}


def test_times_of_two_computers_are_not_compared() -> None:
    found = told(run(100), run(300, host="there", machine="another"), run(104), run(301, host="there"))
    assert [each.before for each in found] == [None, 1, 1, 2]
    assert [each.is_elsewhere for each in found] == [False, True, False, False]
    assert found[1].step_change is None and found[2].step_change is not None
    assert ("machine", "another") in [(each.what, each.now) for each in found[1].differences]
    assert since(found) == {}


def test_what_changed_between_two_runs_is_named() -> None:
    then = Setup(1, "a1b2c3d4e5", "main", False, "aa", {"OMP_NUM_THREADS": "1", "KMP_BLOCKTIME": "0"})
    now = Setup(2, "d4e5f6a7b8", "fast", True, "bb", {"OMP_NUM_THREADS": "2"}, ("compile",))
    _, second = told(
        run(setup=then, versions={"torch": "2.12.0", "python": "3.11"}, threads=1),
        run(setup=now, versions={"torch": "2.13.0", "python": "3.11", "triton": "3.2"}, threads=2, world_size=2,
            command=("/other/python", "train.py", "--batch", "128", "--fast")),
    )  # fmt: skip
    assert {each.what: (each.before, each.now) for each in second.differences} == {
        "commit": ("a1b2c3d", "d4e5f6a+"), "branch": ("main", "fast"), "script": ("aa", "bb"),
        "arguments": ("--batch 64", "--batch 128 --fast"), "remedies": ("", "compile"),
        "OMP_NUM_THREADS": ("1", "2"), "KMP_BLOCKTIME": ("0", ""), "torch": ("2.12.0", "2.13.0"),
        "triton": ("", "3.2"), "threads": ("1", "2"), "ranks": ("1", "2"),
    }  # fmt: skip


def test_what_an_older_report_does_not_say_is_no_difference() -> None:
    first = run(setup=None, versions={"torch": "2.13.0"})
    second = run(setup=Setup(1, "abc", "main", False, "aa"), versions={"torch": "2.13.0", "numpy": "2.0"})
    assert told(first, second)[1].differences == ()


def test_a_git_without_an_answer_is_no_difference() -> None:
    known, unknown = Setup(1, "abc", "main", True, "aa"), Setup(2)
    assert told(run(setup=known), run(setup=unknown), run(setup=known))[1].differences == ()


def test_where_no_run_was_sound_before_there_is_a_before_and_no_change() -> None:
    found = told(run(100, exit_code=1), run(300, command=(*COMMAND, "--fast")), run(301))
    assert [each.before for each in found] == [None, 1, 2]
    assert found[1].step_change is None and [each.now for each in found[1].differences] == ["--fast"]
    assert found[2].step_change is not None


def test_a_run_whose_peak_nobody_saw_is_compared_by_its_step_alone() -> None:
    found = told(run(peak=GIB), run(peak=0), run(peak=GIB))
    assert [each.peak_bytes for each in found] == [GIB, None, GIB]
    assert not any(each.peak_change or each.peak_since for each in found) and found[1].step_change is not None


def test_findings_that_came_and_went_are_told_and_doubts_are_none() -> None:
    first, second = (
        run(findings=(samples.finding("BRR401"), samples.doubt("note"))),
        run(findings=(samples.finding("BRR105"),)),
    )
    found = told(first, second)
    assert (found[1].came, found[1].went) == (("BRR105",), ("BRR401",))
    found = told(first, replace(second, exit_code=1), second)
    assert (found[1].came, found[1].went) == ((), ()) and found[2].came == ("BRR105",)


def test_programs_are_told_apart_by_their_path_and_the_newest_comes_first() -> None:
    every = [("python", "a/train.py"), ("python", "b/train.py"), ("python", "-m", "pkg.train"),
             ("torchrun", "--nproc-per-node", "2", "a/train.py"), ()]  # fmt: skip
    found = runs(*(run(command=command) for command in every))
    assert [(program.name, len(program.runs)) for program in found.programs] == [
        ("?", 1), ("a/train.py", 2), ("pkg.train", 1), ("b/train.py", 1)
    ]  # fmt: skip


def test_one_script_is_one_program_however_its_path_is_written() -> None:
    every = [("python", name) for name in ("train.py", "./train.py", "/w/train.py", "/v/train.py", "/w/a/../train.py")]
    kept = [Kept(str(number), number, run(command=command)) for number, command in enumerate(every)]
    found = history(".gobrrr", kept, root="/w")
    assert {program.name: len(program.runs) for program in found.programs} == {"train.py": 4, "/v/train.py": 1}


def test_a_baseline_is_the_newest_sound_run_of_the_same_command_here() -> None:
    every = [run(), run(), run(command=(*COMMAND, "--fast")), run(host="there"), run(exit_code=1)]
    kept = [Kept(f"run-{number}", number, each) for number, each in enumerate(every, 1)]
    found = baseline(kept, ("/another/python", *COMMAND[1:]), "here")
    assert found is not None and found[0].folder == "run-2"
    assert baseline(kept, ("python", "other.py"), "here") is None


def test_an_odd_newest_run_is_no_baseline() -> None:
    kept = [Kept(f"run-{number}", number, run(ms)) for number, ms in enumerate((100, 101, 100, 150), 1)]
    found = baseline(kept, COMMAND, "here")
    assert found is not None and found[0].folder == "run-3"


def test_a_baseline_has_the_same_remedies_and_counts_of_threads() -> None:
    one, eight = {"OMP_NUM_THREADS": "1", "TORCH_HOME": "a"}, {"OMP_NUM_THREADS": "8", "TORCH_HOME": "b"}
    setups = [Setup(1, variables=one), Setup(2, variables=one, remedies=("compile",)), Setup(3, variables=eight)]
    kept = [Kept(f"run-{number}", number, run(setup=setup)) for number, setup in enumerate(setups, 1)]
    for variables, remedies, folder in ((one, (), "run-1"), (one, ("compile",), "run-2"), (eight, (), "run-3")):
        found = baseline(kept, COMMAND, "here", Setup(4, variables={**variables, "TORCH_HOME": "c"}, remedies=remedies))
        assert found is not None and found[0].folder == folder
    assert baseline(kept, COMMAND, "here", Setup(4)) is None
    assert baseline([Kept("older", 1, run(setup=None))], COMMAND, "here", setups[0]) is not None


def test_steps_of_another_kind_are_not_compared() -> None:
    known = run(100)
    found = told(known, run(300, step=replace(known.step, kind="inference")), run(101))
    assert found[1].is_elsewhere and found[2].before == 1 and since(found) == {}


def test_after_unsound_runs_the_last_of_them_is_the_one_before() -> None:
    found = told(run(100, exit_code=1), run(101, exit_code=1), run(102, exit_code=1))
    assert [each.before for each in found] == [None, 1, 2]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [("-v", "-v -v", ("", "-v")), ("--lr=1 a", "--lr=1 b", ("a", "b")), ("--lr 1 a", "--lr 1 b", ("a", "b")),
     ("--a 1 --b 2", "--a 2 --b 1", ("--a 1 --b 2", "--a 2 --b 1"))],
)  # fmt: skip
def test_arguments_are_told_with_the_option_that_they_belong_to(
    before: str, now: str, expected: tuple[str, str]
) -> None:
    first, second = (run(command=("python", "train.py", *words.split())) for words in (before, now))
    (found,) = told(first, second)[1].differences
    assert (found.before, found.now) == expected
