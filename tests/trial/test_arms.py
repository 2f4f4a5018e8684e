"""Arms on real programs: they stop when told to, their workers too, and whatever they do is an outcome."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

pytest.importorskip("torch")

from gobrrr.errors import GobrrrError
from gobrrr.trial.arm import inside
from gobrrr.trial.arm.arm import SPENT, Arm, ArmError, require_hold
from gobrrr.trial.arm.orphans import HEIRS
from gobrrr.trial.arm.protocol import Phase
from gobrrr.trial.arm.side import MOST_WARM_STEPS, Side
from gobrrr.trial.race.lockstep import measure
from gobrrr.trial.sandbox import landlock
from gobrrr.trial.sandbox.workspace import WORK, mirror_of
from gobrrr.trial.statistics.rounds import Rounds
from tests.support import DESCENT

PROGRAM = Path(__file__).parent / "programs" / "trains.py"


def arm(tmp_path: Path, *words: str, remedies: tuple[str, ...] = ()) -> Arm:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return Arm([sys.executable, str(PROGRAM), *words], tmp_path / "arm", remedies, source=work)


@pytest.fixture
def started(tmp_path: Path):
    arms = []

    def start(*words: str, remedies: tuple[str, ...] = ()) -> Arm:
        made = arm(tmp_path, *words, remedies=remedies)
        arms.append(made)
        made.start(60)
        return made

    yield start
    for each in arms:
        each.end()


@pytest.mark.parametrize(
    ("what", "loop"),
    [
        pytest.param("gan", "1:1", marks=pytest.mark.slow),
        ("evaluates", "1:0"),
        ("by_hand", "5:0"),
        pytest.param("thread", "1:0", marks=pytest.mark.slow),
    ],
)
def test_the_loop_that_was_named_is_measured_whichever_comes_first(what: str, loop: str, tmp_path: Path) -> None:
    """Another loop in a block is no part of it, and nobody waits for the other."""
    program = PROGRAM.with_name("unusual.py")
    (tmp_path / "work").mkdir()
    one = Arm([sys.executable, str(program), what], tmp_path / "arm", source=tmp_path / "work", loop=loop)
    try:
        one.start(100)
        blocks = [one.run(30) for _ in range(3)]
    finally:
        one.end()
    assert [len(block.walls) for block in blocks] == [30] * 3
    assert all(sum(block.walls) <= block.ns for block in blocks)
    assert one._side.aside is None or what == "evaluates"


def test_a_loop_that_never_comes_is_not_called_a_program_that_hangs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("gobrrr.trial.arm.arm.START_S", 3.0)
    monkeypatch.setattr("gobrrr.trial.arm.protocol.TELL_NS", 0)
    (tmp_path / "work").mkdir()
    program = PROGRAM.with_name("unusual.py")
    one = Arm([sys.executable, str(program), "gan"], tmp_path / "arm", source=tmp_path / "work", loop="2:7")
    with pytest.raises(ArmError) as caught:
        one.start(3)
    one.end()
    said = caught.value.reason
    assert caught.value.over or ("no step of forwards" in said and "hang" not in said)


def test_a_block_is_as_many_steps_as_granted_and_then_an_arm_and_its_workers_stand_still(
    started, tmp_path: Path
) -> None:
    one = started("workers", "0")
    block = one.run(7)
    assert len(block.walls) == 7 and 0 < sum(block.walls) <= block.ns
    assert block.peak_bytes is None and block.samples is None, "nobody asked for more than time"
    assert len(one.run(3).walls) == 3 and one.start_seconds > 0
    group = [psutil.Process(one._process.pid), *psutil.Process(one._process.pid).children(recursive=True)]
    time.sleep(0.2)
    assert {process.status() for process in group} == {psutil.STATUS_STOPPED} and len(group) == 2
    samples = mirror_of(tmp_path / "work", tmp_path / "arm" / WORK) / "samples"
    before = samples.stat().st_size
    time.sleep(0.3)
    assert samples.stat().st_size == before
    one.run(20)
    assert samples.stat().st_size > before


LOUD_WITH_A_STRAY = (
    DESCENT
    + """\
import subprocess, sys, torch
child = subprocess.Popen(["sleep", "100"], start_new_session=True)
open("child", "w").write(str(child.pid))
model = torch.nn.Linear(4, 4)
optimizer = Descent(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    print("x" * 100_000)
    print("y" * 100_000, file=sys.stderr)
"""
)


def test_what_it_starts_in_a_session_of_its_own_stands_still_and_ends_and_its_words_are_not_kept(
    tmp_path: Path,
) -> None:
    work = tmp_path / "source"
    work.mkdir()
    (work / "t.py").write_text(LOUD_WITH_A_STRAY)
    one = Arm([sys.executable, "t.py"], tmp_path / "arm", source=work)
    try:
        one.start(100)
        one.run(60)
        child = psutil.Process(int((mirror_of(work, tmp_path / "arm" / WORK) / "child").read_text()))
        time.sleep(0.1)
        assert child.status() == psutil.STATUS_STOPPED
        assert sum(file.stat().st_size for file in (tmp_path / "arm").glob("std*")) < 1 << 20
    finally:
        one.end()
    time.sleep(0.1)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_an_arm_that_is_ended_while_it_is_made_does_not_stay(tmp_path: Path) -> None:
    one = arm(tmp_path)
    one.end()
    with pytest.raises(ArmError):
        one.start(60)
    one.end()


@pytest.mark.slow
def test_blocks_tell_of_graphs_and_their_breaks(started) -> None:
    one = started("compiles", "20")
    graphs = [one.run(5).graphs for _ in range(6)]
    assert graphs[0] == (2, 1) and graphs[-1] == (3, 1)  # the part with the number in it was compiled anew


def test_a_side_tells_of_graphs_their_breaks_and_those_made_anew(tmp_path: Path) -> None:
    work = tmp_path / "source"
    work.mkdir()
    later = str(MOST_WARM_STEPS + 20)  # on a crowded machine the warm-up is long
    side = Side(lambda folder: Arm([sys.executable, str(PROGRAM), "compiles", later], folder, source=work),
                tmp_path / "side", ())  # fmt: skip
    for _ in range(6):
        side.block(MOST_WARM_STEPS // 5)
    found = side.compiled
    side.end()
    assert found is not None and (found.graphs, found.graph_breaks, found.recompiled) == (3, 1, 1)


@pytest.mark.slow
def test_an_ended_arm_leaves_no_process(started) -> None:
    one = started("workers", "0")
    one.run(5)
    pids = [p.pid for p in (psutil.Process(one._process.pid), *psutil.Process(one._process.pid).children())]
    one.end()
    one.end()
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)


def test_an_arm_that_was_killed_says_why_whenever_it_was(started, tmp_path: Path) -> None:
    """Not "out of memory, most likely": it was us. A kill before its process is there counts too."""
    running = started()
    running.kill()
    with pytest.raises(ArmError, match=SPENT):
        running.run(5)
    early = Arm([sys.executable, str(PROGRAM)], tmp_path / "early", source=tmp_path / "work")
    early.kill("not wanted")
    with pytest.raises(ArmError, match="not wanted"):
        early.start()
    early.end()


def test_who_waits_for_an_arm_that_another_thread_ends_hears_it(started) -> None:
    """SIGTERM while arms were started: the main thread ended them, and waited for ever for the thread that still read
    from one, whose descriptor was gone. What has ended is no longer to be ended."""
    running = started("hangs", "4")
    pid = running._process.pid
    assert pid in HEIRS._lines
    heard: list[str] = []

    def waits() -> None:
        try:
            running.run(50)
        except ArmError as error:
            heard.append(error.reason)

    waiting = threading.Thread(target=waits, daemon=True)
    waiting.start()
    time.sleep(0.3)
    running.end()
    waiting.join(20)
    assert not waiting.is_alive() and heard == ["it was ended"]
    assert pid not in HEIRS._lines


def test_a_remedy_takes_hold_in_an_unmodified_program(started) -> None:
    one = started("adamw", "0", remedies=("fused_optimizer", "malloc_thresholds"))
    one.run(2)
    assert one.applied == {"fused_optimizer": "AdamW, 1 of 1 groups", "malloc_thresholds": "1 GiB"}


TWO_LOADERS = (
    DESCENT
    + """\
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self, file=None):
        self.file = file
    def __len__(self):
        return 400
    def __getitem__(self, index):
        return torch.full((4,), float(index))

def loader(data):
    return DataLoader(data, batch_size=4)

valid = DataLoader(Rows(open(__file__)))
test = DataLoader(
    Rows(), batch_size=8)
train, other = loader(Rows()), loader(Rows(open(__file__)))
model = torch.nn.Linear(4, 1)
optimizer = Descent(model.parameters(), lr=1e-6)
for epoch in range(1000):
    for rows in train:
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
)


def test_an_arm_tells_at_which_lines_a_remedy_took_what_it_met(tmp_path: Path) -> None:
    """So that a patch leaves alone what the remedy did, and what it never met."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(TWO_LOADERS)
    one = Arm([sys.executable, "train.py"], tmp_path / "arm", ("one_worker",), source=tmp_path / "work")
    try:
        one.start(60)
    finally:
        one.end()
    assert one.places == {"one_worker": {"train.py:14": False, "train.py:16": False, "train.py:17": True}}


def test_a_line_at_which_a_remedy_once_left_something_is_none_that_it_took(tmp_path: Path) -> None:
    one = Arm([sys.executable, "train.py"], tmp_path / "arm", ("one_worker",), source=tmp_path / "work")
    for kind in ("applied", "declined", "applied"):
        line = {"file": str(tmp_path / "work" / "train.py"), "line": 3}
        one._heard({"kind": kind, "remedy": "one_worker", "detail": "", "line": line}, "ready")
    assert one.places == {"one_worker": {"train.py:3": False}}


@pytest.mark.parametrize("device", [None, "cuda"])
def test_what_comes_once_stays_in_where_a_device_works_meanwhile(
    device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_aside: list[int] = []
    monkeypatch.setattr(inside, "cuda_in_use", lambda: device)
    arm = object.__new__(inside.Inside)
    arm._thread, arm._once_ns, arm._side = threading.get_ident(), 0, SimpleNamespace(put_aside=put_aside.append)
    arm._put_aside(5)
    assert put_aside == ([5] if device is None else [])


COMPUTES = (
    DESCENT
    + """\
import time, torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.full((4,), float(index))

model = torch.nn.Linear(4, 1)
optimizer = Descent(model.parameters(), lr=1e-6)
for epoch in range(1000):
    for rows in DataLoader(Rows(), batch_size=4):
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
)


def test_what_an_arm_does_once_is_in_none_of_its_blocks(tmp_path: Path) -> None:
    """Ten batches of four samples that sleep: the clock on the wall has them, the block and its steps have not."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "computes.py").write_text(COMPUTES)
    one = Arm([sys.executable, "computes.py"], tmp_path / "arm", ("computed_once",), source=tmp_path / "work")
    one.start(60)
    try:
        began = time.perf_counter_ns()
        block = one.run(10)
        passed = time.perf_counter_ns() - began
    finally:
        one.end()
    assert passed - block.ns >= 10 * 4 * 10_000_000 and sum(block.walls) <= block.ns
    assert one.applied == {"computed_once": "samples of Rows"}


def test_an_arm_that_does_what_comes_once_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle in its loader for 60 s where a block was to take one: it said so each time."""
    clock, one = [0.0], arm(tmp_path)
    said = [{"kind": "once", "ns": 10**10}, None] * 6 + [{"kind": "block", "number": 0}]

    def receive(seconds: float) -> object:
        message = said.pop(0)
        clock[0] += 10.0 if message and message["kind"] == "once" else seconds
        return message

    monkeypatch.setattr("gobrrr.trial.arm.arm.time.monotonic", lambda: clock[0])
    one._process, one._told = SimpleNamespace(poll=lambda: None), SimpleNamespace(receive=receive)
    one._side.told({"kind": "ready", "number": 0})
    one._side.phase = Phase.RUNNING
    assert one._expect("block", 10.0)["kind"] == "block" and clock[0] >= 60
    one._process = None


@pytest.mark.slow
def test_what_is_written_is_kept_and_the_terminal_is_not_the_arms(started, tmp_path: Path) -> None:
    one = started("dies", "3")
    with pytest.raises(ArmError) as caught:
        one.run(50)
    assert "exit code 3: the disk is full" in caught.value.reason and not caught.value.over
    assert (tmp_path / "arm" / "stderr").read_text() == "the disk is full\n"


def test_a_program_that_comes_to_its_end_is_over(started) -> None:
    with pytest.raises(ArmError) as caught:
        started("short", "5").run(50)
    assert caught.value.over


def test_a_program_that_hangs_is_an_outcome(started, monkeypatch: pytest.MonkeyPatch) -> None:
    one = started("hangs", "4")
    monkeypatch.setattr("gobrrr.trial.arm.arm.START_S", 1.0)
    monkeypatch.setattr("gobrrr.trial.arm.arm.GRACE_S", 0.2)
    with pytest.raises(ArmError, match="hangs"):
        one.run(50)
    one.end()


def test_a_program_without_steps_never_gets_ready(tmp_path: Path) -> None:
    one = Arm([sys.executable, "-c", "import torch"], tmp_path / "arm")
    with pytest.raises(ArmError, match="end"):
        one.start(60)
    one.end()


OUTSIDE = {
    "another program": "import os, sys; sys.exit(os.waitstatus_to_exitcode(os.system('echo x >> ' + sys.argv[1])))",
    "Python": "import sys; open(sys.argv[1], 'a')",
}


@pytest.mark.skipif(not landlock.means(), reason="this kernel has no means")
@pytest.mark.parametrize("guarded", [False, True], ids=["timed", "guarded"])
@pytest.mark.parametrize("who", OUTSIDE)
def test_an_arm_that_writes_outside_is_a_failed_trial_with_its_reason(who: str, guarded: bool, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    outside = tmp_path / "results"
    outside.write_text("the user's")
    one = Arm([sys.executable, "-c", OUTSIDE[who], str(outside)], tmp_path / "arm", source=tmp_path / "work")
    with pytest.raises(ArmError, match=r"which a trial must not change: .*--allow-writes DIR") as caught:
        one.observe(3) if guarded else one.start(60)
    assert who != "Python" or f"it writes to {outside}" in caught.value.reason
    scratch = one._scratch
    one.end()
    assert outside.read_text() == "the user's" and scratch is not None and not scratch.exists()


@pytest.mark.skipif(not landlock.means(), reason="this kernel has no means")
def test_a_program_that_cannot_be_started_is_an_outcome(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    one = Arm(["no-such-command"], tmp_path / "arm", source=tmp_path / "work")
    with pytest.raises(ArmError, match="cannot start no-such-command"):
        one.start(60)
    one.end()


def test_an_unknown_remedy_is_refused_before_anything_starts(tmp_path: Path) -> None:
    from gobrrr.remedies.registry import composed

    with pytest.raises(GobrrrError, match="no remedy is called elixir"):
        composed(["elixir"])
    with pytest.raises(GobrrrError, match="cannot be applied together"):
        composed(["one_worker", "loader_workers"])


@pytest.mark.parametrize("words", [
    pytest.param([str(PROGRAM), "workers", "0"], marks=pytest.mark.slow), [str(PROGRAM.with_name("leaves.py"))],
])  # fmt: skip
def test_a_killed_referee_leaves_nobody_behind(words: list[str], tmp_path: Path) -> None:
    """Also of what the program has executed, which stands still and hears of no parent's death."""
    (tmp_path / "work").mkdir()
    referee = (
        "import sys, time; from pathlib import Path; from gobrrr.trial.arm.arm import Arm\n"
        f"arm = Arm([sys.executable, *{words!r}], Path({str(tmp_path / 'arm')!r}),"
        f" source=Path({str(tmp_path / 'work')!r}))\n"
        "arm.start(60); arm.run(3); print(arm._process.pid, flush=True); time.sleep(100)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", referee], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    helpers = [each for each in psutil.Process(process.pid).children() if each.pid != pid]
    assert len(helpers) == 1
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(family + helpers, timeout=10)
    for each in alive:  # not to be left by a test that fails
        each.kill()
    assert not alive, alive


def test_an_arm_whose_referee_dies_before_it_has_begun_dies_too(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    referee = (
        "import os, subprocess, sys; from pathlib import Path; from gobrrr.trial.arm.arm import Arm\n"
        "class Last(subprocess.Popen):\n"
        "    def __init__(self, *words, **fields):\n"
        "        super().__init__(*words, **fields)\n"
        "        if fields.get('start_new_session'):\n"
        "            print(self.pid, flush=True); os.kill(os.getpid(), 9)\n"
        "subprocess.Popen = Last\n"
        f"Arm([sys.executable, {str(PROGRAM)!r}], Path({str(tmp_path / 'arm')!r}),"
        f" source=Path({str(tmp_path / 'work')!r})).start(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", referee], stdout=subprocess.PIPE, text=True)
    with contextlib.suppress(psutil.NoSuchProcess):
        arm = psutil.Process(int(done.stdout))
        try:
            arm.wait(timeout=60)
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                arm.kill()


def side(tmp_path: Path, name: str, *words: str, remedies: tuple[str, ...] = ()) -> Side:
    command = [sys.executable, str(PROGRAM), *words]
    (tmp_path / f"{name}-work").mkdir()
    return Side(
        lambda folder: Arm(command, folder, remedies, source=tmp_path / f"{name}-work"), tmp_path / name, remedies
    )


def small(*args, **fields) -> Rounds:
    return Rounds(*args, **{**fields, "most": 3})


def pairs_of_processes(tmp_path: Path) -> list[int]:
    """How often each arm was started."""
    return [len(list((tmp_path / name).iterdir())) for name in ("a", "b")]


@pytest.mark.slow
def test_two_arms_are_compared_in_turn_and_started_anew_for_each_round(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    found = measure(
        side(tmp_path, "a"), side(tmp_path, "b", remedies=("malloc_thresholds",)), seed=1, seconds=120,
        progress=lambda done, planned, so_far: heard.append((done, planned)), rounds=small,
    )  # fmt: skip
    assert found.verdict in ("equivalent", "inconclusive", "faster", "slower")
    arms, rounds = found.samples.arm, found.samples.round
    assert {tuple(arms[i : i + 4]) for i in range(0, len(arms), 4)} <= {(0, 1, 1, 0), (1, 0, 0, 1)}
    assert sorted(set(rounds)) == [1, 2, 3] and list(rounds) == sorted(rounds)
    assert pairs_of_processes(tmp_path) == [3, 3]
    assert heard[-1][0] == len(arms) and found.speedup is not None
    assert min(found.samples.steps) >= 1 and None not in found.step_ns and None not in found.peak_bytes


@pytest.mark.slow
def test_without_time_for_three_starts_it_is_inconclusive_and_says_what_would_do(tmp_path: Path) -> None:
    found = measure(side(tmp_path, "a"), side(tmp_path, "b", remedies=("malloc_thresholds",)), seed=1, seconds=0.1)
    assert found.verdict == "inconclusive" and "time for 1 of the 3 starts of each arm" in found.reason
    said = re.search(r"; (\d+) would settle it", found.reason)
    assert said is not None and int(said[1]) >= 3, "noise may ask for more than three rounds"
    assert found.starts_needed == int(said[1])
    assert found.blocks_needed is not None and pairs_of_processes(tmp_path) == [1, 1]
    per_round = found.blocks_needed / int(said[1])  # later rounds may be shorter than the first, the pilot
    assert per_round in range(8, len(found.samples.arm) + 1, 4)
    assert set(found.samples.round) == {1} and found.speedup is not None


@pytest.mark.slow
def test_a_short_program_starts_again_as_often_as_blocks_ask_for(tmp_path: Path) -> None:
    """Each of its processes lives for some blocks; that is no new round."""
    found = measure(
        side(tmp_path, "a", "short", "400"), side(tmp_path, "b", "short", "400", remedies=("malloc_thresholds",)),
        seed=1, seconds=0.1,
    )  # fmt: skip
    assert found.speedup is not None and set(found.samples.round) == {1}
    assert min(pairs_of_processes(tmp_path)) > 1 and found.start_up.program_steps is not None


@pytest.mark.slow
def test_without_memory_for_two_each_block_is_a_run_of_its_own(tmp_path: Path) -> None:
    found = measure(
        side(tmp_path, "a"),
        side(tmp_path, "b", remedies=("malloc_thresholds",)),
        seed=1,
        seconds=1,
        free_bytes=lambda: 0,
    )
    assert "one arm at a time" in found.reason and len(found.samples.arm) == 8
    assert min(pairs_of_processes(tmp_path)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(("words", "why"), [(("dies", "2"), "with the remedy: it ended with exit code 3"),
                                            (("short", "3"), "too short")])  # fmt: skip
def test_an_arm_that_fails_is_a_failed_trial_with_its_reason(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    found = measure(side(tmp_path, "a"), side(tmp_path, "b", *words), seed=1, seconds=10, rounds=small)
    assert found.verdict == "failed" and why in found.reason


@pytest.mark.slow
def test_a_remedy_that_never_takes_hold_is_not_a_trial(tmp_path: Path) -> None:
    found = measure(side(tmp_path, "a"), side(tmp_path, "b", remedies=("anomaly_off",)), seed=1, seconds=10)
    assert found.verdict == "failed" and "anomaly_off never took hold" in found.reason


@pytest.mark.slow
def test_why_a_remedy_left_things_as_they_were_is_told(tmp_path: Path) -> None:
    """batched_fetch never took hold, and a person was left to guess what of their data set it does not take."""
    (tmp_path / "train.py").write_text(
        """import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader([torch.randn(4) for _ in range(64)], batch_size=4):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
    )
    one = Arm([sys.executable, "train.py"], tmp_path / "arm", ["batched_fetch"], source=tmp_path)
    try:
        one.start()
        assert not one.applied and one.declined == {
            "batched_fetch": "its data set (a list) may do more than index arrays in memory"
        }
    finally:
        one.end()
    with pytest.raises(ArmError, match="never took hold here: its data set"):
        require_hold(["batched_fetch"], one.applied, one.declined, "here")
