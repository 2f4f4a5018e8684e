"""`gobrrr attach`: what it writes of a recorded look, what it says where it can see nothing, and a real one."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gobrrr.capture.process.config import VARIABLE, Config
from gobrrr.cli.main import main
from gobrrr.recording.live import spy
from gobrrr.system import process_tree, processes
from tests.support.py_spy import hanging, refusing, writing

HERE = Path(sys.executable).parent
LIVE = next((found for found in (HERE / "py-spy", shutil.which("py-spy")) if found and Path(found).is_file()), None)


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "600"]) as child:
        yield child.pid
        child.kill()


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """py-spy that writes what it once recorded."""
    fake = writing(tmp_path / "py-spy", "loader_main.json")
    monkeypatch.setattr(spy, "find", lambda: str(fake))
    return fake


def test_a_look_as_text_ends_with_the_next_command(
    recorded: Path, sleeper: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attach", str(sleeper), "--seconds", "1.2"]) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[0].startswith("69.0 % of the samples wait for the loader, at train.py:26 in main")
    assert f"58 samples of pid {sleeper}" in told
    assert "need gobrrr run" in told and told.splitlines()[-1].split() == "next gobrrr run -- sleep 600".split()


def test_a_look_goes_into_a_file_by_its_name_and_into_a_folder(recorded: Path, sleeper: int, tmp_path: Path) -> None:
    assert main(["attach", str(sleeper), "--seconds", "1", "-o", str(tmp_path / "seen.md")]) == 0
    assert "wait for the loader" in (tmp_path / "seen.md").read_text()
    assert main(["attach", str(sleeper), "--seconds", "1", "-o", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "attach.json").read_text())
    assert (found["schema"], found["pid"]) == ("gobrrr.attach/1", sleeper)
    (process,) = found["processes"]
    assert sum(process["kinds"].values()) == pytest.approx(1)
    assert found["rss_bytes"] > 0 and found["cores"] >= 1


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["attach", *words, "--seconds", "0.3"]) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told and len(told.splitlines()) == 2
    return told


def test_a_process_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert f"there is no process {child.pid}" in refusal(capsys, str(child.pid))


def test_one_that_gobrrr_watches_is_left_to_top(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = {**os.environ, VARIABLE: Config(str(tmp_path / "run")).to_env()}
    with subprocess.Popen(["sleep", "600"], env=env) as child:
        told = refusal(capsys, str(child.pid)), refusal(capsys, str(os.getpid()))
        child.kill()
    for each in told:  # the second is that of the process which started it
        assert f"watches pid {child.pid}" in each and f"gobrrr top {tmp_path / 'run'}" in each


def test_without_py_spy_the_extra_is_named(
    sleeper: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "pip install 'gobrrr[attach]'" in refusal(capsys, str(sleeper))


def test_one_that_may_not_be_read(
    sleeper: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fake = refusing(tmp_path / "py-spy", "Permission Denied: Try running again with elevated permissions")
    monkeypatch.setattr(spy, "find", lambda: str(fake))
    told = refusal(capsys, str(sleeper))
    assert "sudo" in told and "SYS_PTRACE" in told


def test_py_spy_that_hangs_does_not_hold_us(
    sleeper: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(spy, "find", lambda: str(hanging(tmp_path / "py-spy")))
    monkeypatch.setattr("gobrrr.recording.live.outside.SLACK_S", 0.2)
    assert "did not answer in time" in refusal(capsys, str(sleeper))
    assert processes.find(sleeper) is not None


def attaching(fake: Path, *words: str) -> list[str]:
    """A command that looks at the process which starts it."""
    ours = "from gobrrr.recording.live import spy; from gobrrr.cli.main import main"
    call = f"spy.find = lambda: {str(fake)!r}; sys.exit(main(['attach', str(os.getppid()), *{words!r}]))"
    return [sys.executable, "-c", f"import os, sys; {ours}; {call}"]


def test_gobrrr_below_the_process_is_no_part_of_it(recorded: Path, tmp_path: Path) -> None:
    words = shlex.join(attaching(recorded, "--seconds", "2.5", "-o", str(tmp_path)))
    subprocess.run(["sh", "-c", f"{words}; true"], check=True, capture_output=True)
    found = json.loads((tmp_path / "attach.json").read_text())
    assert [process["pid"] for process in found["processes"]] == [found["pid"]]
    assert (found["more"], found["threads"]) == (0, 1)


def spies(program: Path) -> list[psutil.Process]:
    return [each for each in psutil.process_iter(["cmdline"]) if str(program) in (each.info["cmdline"] or ())]


def test_no_py_spy_outlives_a_look_that_fails(sleeper: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, calls = hanging(tmp_path / "py-spy"), iter([process_tree.Reading(0.0)])
    monkeypatch.setattr(spy, "find", lambda: str(fake))
    monkeypatch.setattr(process_tree, "reading", lambda pid, now: next(calls))
    with pytest.raises(StopIteration):
        main(["attach", str(sleeper), "--seconds", "60"])
    assert not spies(fake)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
def test_no_py_spy_outlives_a_look_that_is_killed(tmp_path: Path) -> None:
    fake = hanging(tmp_path / "py-spy")
    with subprocess.Popen(attaching(fake, "--seconds", "600"), stderr=subprocess.DEVNULL) as looks:
        while looks.poll() is None and not spies(fake):
            time.sleep(0.05)
        assert looks.poll() is None
        looks.kill()
    for _ in range(100):
        if not (left := spies(fake)):
            break
        time.sleep(0.05)
    for each in left:
        each.kill()
    assert not left


@pytest.mark.parametrize("wrong", [["--seconds", "0"], ["--seconds", "4000"], ["--rate", "0"], ["--rate", "5000"]])
def test_figures_that_make_no_look(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "1", *wrong]) == 2
    told = capsys.readouterr().err
    assert any(words in told for words in ("must be at least", "must be more", "an hour at most"))


def test_memory_is_that_of_all_processes(recorded: Path, tmp_path: Path) -> None:
    holds = "held = b'x' * (64 << 20); import time; print(flush=True); time.sleep(600)"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {holds!r}])"
    with subprocess.Popen([sys.executable, "-c", starts], stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None and child.stdout.readline()
        assert main(["attach", str(child.pid), "--seconds", "1.2", "-o", str(tmp_path)]) == 0
        os.killpg(child.pid, signal.SIGKILL)
    found = json.loads((tmp_path / "attach.json").read_text())
    assert 64 << 20 < found["rss_bytes"] < 1 << 30
    assert abs(found["rss_growth"]) < 32 << 20 and len(found["processes"]) == 2


PROGRAM = """
import select, sys, time
def waits_here():
    time.sleep(0.01)
print("begun", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    waits_here()
print("whole", flush=True)
"""


@pytest.mark.skipif(LIVE is None, reason="py-spy is not installed")
@pytest.mark.parametrize("how", ["to the end", "Ctrl-C", "ends"])
def test_a_real_look_names_the_line_and_lets_the_program_go_on(how: str, tmp_path: Path) -> None:
    (tmp_path / "naps.py").write_text(PROGRAM)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "naps.py"], cwd=tmp_path, text=True, **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == "begun\n"
        seconds = "2" if how == "to the end" else "60"
        words = [sys.executable, "-m", "gobrrr", "attach", str(child.pid), "--seconds", seconds, "--json"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as looks:
            while looks.poll() is None and not psutil.Process(looks.pid).children():
                time.sleep(0.05)
            time.sleep(2)
            if how == "Ctrl-C":
                looks.send_signal(signal.SIGINT)
            elif how == "ends":
                child.stdin.close()
            told, _ = looks.communicate(timeout=60)
        child.stdin.close()
        rest = child.stdout.read()
    found = json.loads(told)
    assert looks.returncode == (130 if how == "Ctrl-C" else 0)
    assert {"to the end": "", "Ctrl-C": "ended early", "ends": "the program ended after"}[how] in found["ended"]
    assert "naps.py:4 in waits_here" in found["verdict"] and "sleep" in found["verdict"]
    assert (child.returncode, rest) == (0, "whole\n")
