"""What cannot be run or watched: one line that says what to do, the program's own exit code, no earlier run lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gobrrr.recording.run_folder.run import load_run
from tests.cli.conftest import PROGRAMS, Done, Runner, own_part

ENDS, NEVER = PROGRAMS / "ends.py", PROGRAMS / "never.py"


def refused(done: Done, code: int, *words: str) -> None:
    """gobrrr itself ended with an error for people: what, then what to do."""
    assert done.code == code, done.text
    assert done.out == b""
    lines = done.text.splitlines()
    assert len(lines) == 2, done.text
    assert lines[0].startswith("gobrrr: error: ")
    assert lines[1].startswith("  hint: ")
    for word in words:
        assert word in done.text


def test_what_is_no_python_program_is_refused(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(range(256)))
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "folder").mkdir()
    refused(gobrrr("run"), 2, "no program")
    refused(gobrrr("run", "no_such.py"), 2, "no such script: no_such.py", "-m")
    refused(gobrrr("run", "data.bin"), 2, "data.bin is not Python")
    refused(gobrrr("run", "broken.py"), 2, "broken.py is not Python (line 1)")
    refused(gobrrr("run", "folder"), 2, "__main__.py")
    refused(gobrrr("run", "--", "no-such-command"), 127, "no such command")
    refused(gobrrr("run", "--budget", "soon", ENDS), 2, "budget")
    refused(gobrrr("run", "--json", "no/such/file.json", ENDS), 2, "cannot write no/such/file.json")
    assert not (tmp_path / ".gobrrr").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_the_program_runs(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(gobrrr("run", "-o", "file/below", ENDS), 2, "cannot write into file/below", "-o DIR")
    refused(gobrrr("run", "-o", "file", ENDS), 2, "file")
    refused(gobrrr("run", "-o", "/proc/none", ENDS), 2, "cannot write into /proc/none")
    (tmp_path / ".gobrrr").write_text("mine")
    refused(gobrrr("run", ENDS), 2, ".gobrrr")
    assert (tmp_path / "file").read_text() == (tmp_path / ".gobrrr").read_text() == "mine"


def test_an_earlier_run_is_never_written_over(gobrrr: Runner, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "report.json").write_text("{}")
    refused(gobrrr("run", "-o", "run", ENDS), 2, "run is not empty", "a new folder")
    assert [path.name for path in run.iterdir()] == ["report.json"]
    folders = [
        gobrrr("run", PROGRAMS / "tells.py", input=b"") and set((tmp_path / ".gobrrr").glob("*-*")) for _ in range(3)
    ]
    assert [len(found) for found in folders] == [1, 2, 3]


def test_a_module_that_is_not_there_fails_as_it_does_alone(plainly: Runner, gobrrr: Runner) -> None:
    plain, watched = plainly("-m", "no_such_module"), gobrrr("run", "-m", "no_such_module")
    assert (watched.code, watched.out) == (plain.code, plain.out)
    assert "the program ended with 1 and never imported torch (run it without gobrrr" in own_part(plain, watched)


@pytest.mark.parametrize(("words", "why"), [
    (["dies"], "ended with 1 before it made a step (run it without gobrrr; if"),
    pytest.param([], "made no step that could be seen (mark its loop", marks=pytest.mark.slow),
])  # fmt: skip
def test_a_program_without_steps_is_told_so(words: list[str], why: str, plainly: Runner, gobrrr: Runner) -> None:
    plain, watched = plainly(NEVER, *words), gobrrr("run", NEVER, *words)
    assert (watched.code, watched.out) == (plain.code, plain.out)
    said = own_part(plain, watched)
    assert said.startswith("gobrrr: nothing was recorded: the program ")
    assert why in said


SPAWNS = """
import torch, torch.multiprocessing as mp
def train(rank):
    torch.set_num_threads(1)
    for _ in range(400):
        torch.ones(300, 300) @ torch.ones(300, 300)
    import time; end = time.process_time() + 4
    while time.process_time() < end: pass
if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
"""


@pytest.mark.slow
def test_a_program_whose_children_train_is_told_what_to_type(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "spawns.py").write_text(SPAWNS)
    watched = gobrrr("run", "spawns.py")
    assert watched.code == 0 and "made no step itself, the processes that it started did (" in watched.text
    assert "gobrrr run -- torchrun --nproc_per_node N script.py" in watched.text


HOGWILD = """
import torch, torch.multiprocessing as mp
def train(model):
    import time; end = time.process_time() + 1.5
    while time.process_time() < end: model(torch.randn(64, 64)).sum().backward()
if __name__ == "__main__":
    model = torch.nn.Linear(64, 64).share_memory()
    processes = [mp.get_context("spawn").Process(target=train, args=(model,)) for _ in range(2)]
    for process in processes: process.start()
    for process in processes: process.join()
    with torch.no_grad():
        for _ in range(300): model(torch.randn(2000, 64))
"""


def test_a_parent_that_only_evaluates_is_not_taken_for_the_run(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "hogwild.py").write_text(HOGWILD)
    watched = gobrrr("run", "--no-rehearsal", "-o", "run", "hogwild.py")
    assert watched.code == 0 and watched.text.startswith("Unreliable: child processes used ")
    verdict = " ".join(watched.text.split())
    assert "gobrrr run -- torchrun --nproc_per_node N script.py" in verdict and "(BRR904)." in verdict
    assert "gobrrr tune" not in verdict
    (recording,) = load_run(tmp_path / "run")
    assert recording.raw_facts[-1]["children"]["processes"] == 2


@pytest.mark.parametrize("flags", ["-I", "-E"])
def test_a_python_that_keeps_gobrrr_out_is_told_so(flags: str, gobrrr: Runner) -> None:
    watched = gobrrr("run", "--", sys.executable, flags, NEVER)
    assert (watched.code, watched.out) == (0, b"2.0\n")
    assert "no Python that could be watched" in watched.text


def test_a_command_that_is_no_python(gobrrr: Runner) -> None:
    watched = gobrrr("run", "--", "sh", "-c", "echo hello; exit 4")
    assert (watched.code, watched.out) == (4, b"hello\n")
    assert "started no Python that could be watched; the program ended with 4" in watched.text


def test_a_gobrrr_inside_is_told_so(gobrrr: Runner) -> None:
    watched = gobrrr("run", "--", sys.executable, "-m", "gobrrr", "run", NEVER)
    assert watched.code == 2
    assert "a gobrrr is watching this process already" in watched.text
    assert "run the program without the inner gobrrr" in watched.text
    assert "never imported torch" not in watched.text


def test_watch_inside_a_watched_run_records_once(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text(
        "import runpy, sys, gobrrr\nsys.argv[1:] = ['normally']\nwith gobrrr.watch('inner'):\n"
        f"    runpy.run_path({str(ENDS)!r}, run_name='__main__')\n"
    )
    watched = gobrrr("run", "-o", "outer", "inner.py")
    assert watched.code == 0, watched.text
    assert not (tmp_path / "inner").exists()
    assert len(load_run(tmp_path / "outer")) == 1


def test_an_older_torch_is_told_so(gobrrr: Runner, tmp_path: Path) -> None:
    fake = tmp_path / "old" / "torch"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("__version__ = '2.3.1+cpu'\n")
    (tmp_path / "uses.py").write_text("import torch\nprint(torch.__version__)\nraise SystemExit(6)\n")
    watched = gobrrr("run", "uses.py", environ={"PYTHONPATH": str(tmp_path / "old")})
    assert (watched.code, watched.out) == (6, b"2.3.1+cpu\n")
    assert "torch 2.3.1+cpu is too old to watch (gobrrr needs torch 2.6 or newer)" in watched.text
    assert watched.text.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    ["raise ImportError('libtorch.so is not there')", "raise ModuleNotFoundError('No module named torch')", "1/0"],
)
def test_a_torch_that_does_not_load_fails_as_it_does_alone(
    text: str, plainly: Runner, gobrrr: Runner, tmp_path: Path
) -> None:
    fake = tmp_path / "broken" / "torch"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text(f"def load():\n    {text}\nload()\n")
    (tmp_path / "uses.py").write_text("import torch\n")
    path = {"PYTHONPATH": str(tmp_path / "broken")}
    plain, watched = plainly("uses.py", environ=path), gobrrr("run", "uses.py", environ=path)
    assert (plain.code, watched.code) == (1, 1)
    said = own_part(plain, watched)
    assert "the program ended with 1" in said
    assert said.startswith("gobrrr: nothing was recorded")


def _bare_python() -> str | None:
    """A Python without torch, gobrrr or any of its dependencies."""
    for python in (shutil.which("python3", path="/usr/bin"), str(Path(sys.base_prefix) / "bin" / "python3")):
        if python and subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
            return python
    return None


def test_a_python_without_torch_is_told_so(gobrrr: Runner, tmp_path: Path) -> None:
    bare = _bare_python()
    if bare is None:
        pytest.skip("every Python here has torch")
    (tmp_path / "uses.py").write_text("import torch\n")
    alone = subprocess.run([bare, "uses.py"], cwd=tmp_path, capture_output=True)
    watched = gobrrr("run", "--", bare, "uses.py")
    assert watched.code == 1
    said = own_part(Done(alone.returncode, alone.stdout, alone.stderr), watched)
    assert "ended with 1 and never imported torch (" in said
    assert f"if torch is what it lacks: {bare} -m pip install torch)" in said


def test_a_full_disk_costs_the_recording_only(printed: Done, gobrrr: Runner, tmp_path: Path) -> None:
    """The program may write no file above 4 KiB: its journal ends there, and the report says so."""
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", sys.executable, str(ENDS), "exit"]
    watched = gobrrr("run", "-o", "run", "--", *limited)
    assert (watched.code, watched.out) == (7, printed.out)
    said = own_part(printed, watched)
    assert "could not be written to its end: File too large" in said
    assert load_run(tmp_path / "run")[0].loops


@pytest.mark.parametrize("ending", ["exit", pytest.param("returns", marks=pytest.mark.slow)])
def test_a_recording_that_was_cut_before_its_first_step_says_so(gobrrr: Runner, tmp_path: Path, ending: str) -> None:
    """Not that the program made no step, nor that it fails with gobrrr only: its exit code is its own."""
    limited = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", sys.executable, str(ENDS), ending]
    done = gobrrr("run", "-o", "run", "--", *limited)
    assert done.code == (7 if ending == "exit" else 0)
    assert (
        f"could not be written to its end: File too large; the program ended with {done.code} (make room" in done.text
    )
    assert "-o DIR" in done.text and "second step" not in done.text and "a defect of gobrrr" not in done.text


def test_no_room_for_the_report_costs_only_the_file(gobrrr: Runner, tmp_path: Path) -> None:
    """Everything that gobrrr itself writes fails from the report on."""
    (tmp_path / "full.py").write_text(
        "import errno, os, pathlib, sys\n"
        "def full(*_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "pathlib.Path.replace = full\n"
        "from gobrrr.cli.main import main\n"
        f"sys.exit(main(['run', '-o', 'run', {str(ENDS)!r}, 'exit']))\n"
    )
    done = subprocess.run([sys.executable, "full.py"], cwd=tmp_path, capture_output=True, text=True, env=gobrrr.env)
    assert done.returncode == 7
    assert "cannot write run/report.json: No space left on device" in done.stderr
    assert "median of" in done.stderr


@pytest.mark.slow
def test_a_defect_of_ours_keeps_the_programs_exit_code(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "defect.py").write_text(
        "import sys\nimport gobrrr.ledger.build as build\n"
        "build.build_ledger = lambda *_: {}['no such key']\n"
        "from gobrrr.cli.main import main\n"
        f"sys.exit(main(['run', '-o', 'run', {str(ENDS)!r}, 'exit']))\n"
    )
    done = subprocess.run([sys.executable, "defect.py"], cwd=tmp_path, capture_output=True, text=True, env=gobrrr.env)
    assert done.returncode == 7
    assert "a defect of gobrrr kept it from judging this run: KeyError" in done.stderr
    assert "Traceback" not in done.stderr
    assert load_run(tmp_path / "run")


@pytest.mark.slow
def test_forked_and_spawned_children_are_not_mixed_in(plainly: Runner, gobrrr: Runner, tmp_path: Path) -> None:
    plain, watched = plainly(PROGRAMS / "forks.py"), gobrrr("run", "-o", "run", PROGRAMS / "forks.py")
    assert (watched.code, watched.out) == (plain.code, plain.out)
    own_part(plain, watched)
    (recording,) = load_run(tmp_path / "run")
    assert recording.ended == "exit"
    assert sum(len(loop.steps) for loop in recording.loops) <= 40


BLOCKED = (
    "import socket\n"
    "def blocked(*_, **__): raise AssertionError('gobrrr opens a socket')\n"
    "socket.socket.__init__ = socket.create_connection = socket.getaddrinfo = blocked\n"
)


def test_no_socket_is_opened_and_nothing_written_elsewhere(gobrrr: Runner, tmp_path: Path) -> None:
    for name in ("home", "tmp", "site"):
        (tmp_path / name).mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCKED)
    environ = {
        "PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    watched = gobrrr("run", "--json", "out.json", ENDS, "normally", environ=environ)
    assert watched.code == 0
    assert "median of" in watched.text
    assert "socket" not in watched.text
    assert sorted(path.name for path in tmp_path.iterdir()) == [".gobrrr", "home", "out.json", "site", "tmp"]
    assert not [*(tmp_path / "home").iterdir(), *(tmp_path / "tmp").iterdir()]
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["sitecustomize.py"]


def test_a_reader_that_leaves_costs_no_exit_code(gobrrr: Runner, tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m gobrrr run "{NEVER}" dies'
    for redirect in ("2>&-", "2>/dev/full"):
        done = subprocess.run(["sh", "-c", f"{command} {redirect}"], cwd=tmp_path, env=gobrrr.env, timeout=60)
        assert done.returncode == 1, redirect


@pytest.mark.parametrize("most", [3000, pytest.param(30_000, marks=pytest.mark.slow), -1])
def test_a_file_that_may_not_grow_costs_no_signal_and_no_method_of_the_program_is_called(
    plainly: Runner, gobrrr: Runner, most: int
) -> None:
    program = Path(__file__).parent / "programs" / "limited.py"
    plain, watched = plainly(program, str(most)), gobrrr("run", program, str(most))
    assert plain.code == 0 and (watched.code, watched.out) == (plain.code, plain.out)
