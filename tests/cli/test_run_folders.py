"""Every run has a folder of its own, whoever begins at the same moment, and nobody else may look into it."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from gobrrr.errors import GobrrrError
from gobrrr.system import run_folder
from tests.cli.conftest import Runner


def test_runs_that_begin_together_share_no_folder(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '1.0'\n")
    (tmp_path / "program.py").write_text("import sys, torch; print(sys.argv[1])\n")
    runs = [
        subprocess.Popen([*gobrrr.command, "run", "program.py", str(n)], env=gobrrr.env, cwd=tmp_path,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for n in range(4)
    ]  # fmt: skip
    assert [run.communicate(timeout=120)[0] for run in runs] == [b"0\n", b"1\n", b"2\n", b"3\n"]
    made = sorted((tmp_path / ".gobrrr").glob("*-*"))
    assert (tmp_path / ".gobrrr" / ".gitignore").read_text() == "*\n", "runs are no part of the project"
    assert [len(list(folder.glob("seen-*.json"))) for folder in made] == [1, 1, 1, 1]
    assert all((path.stat().st_mode & 0o777) == 0o700 for path in (tmp_path / ".gobrrr", *made))
    files = [path for folder in made for path in folder.iterdir()]
    assert all((path.stat().st_mode & 0o077) == 0 for path in files), files


def at_once(number: int, make: object) -> list[Path | GobrrrError]:
    """What so many threads get that call `make` at the same moment."""
    barrier, found = threading.Barrier(number), []

    def one() -> None:
        barrier.wait()
        try:
            found.append(make())  # type: ignore[operator]
        except GobrrrError as error:
            found.append(error)

    threads = [threading.Thread(target=one) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_a_name_that_is_taken_is_given_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_folder.time, "strftime", lambda _: "now")
    made = at_once(16, lambda: run_folder.of_run(None, ["python", "train.py"]))
    assert {str(path) for path in made} == {".gobrrr/train-now", *(f".gobrrr/train-now-{n}" for n in range(2, 17))}


def test_one_named_folder_is_one_runs(tmp_path: Path) -> None:
    made = at_once(16, lambda: run_folder.of_run(str(tmp_path / "a" / "run"), ["python", "train.py"]))
    assert sum(isinstance(found, Path) for found in made) == 1
    assert {str(found) for found in made if isinstance(found, GobrrrError)} <= {
        f"{tmp_path}/a/run {why} (name a new folder: an earlier run is never written over)"
        for why in ("is not empty", "holds a recording already")
    }


def test_what_a_run_that_recorded_nothing_left_gives_way(tmp_path: Path) -> None:
    """It failed at an import, was mended, and its folder was taken."""
    gone = 999_999_999
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (".claim", "gauges.jsonl", f"seen-{gone}.json", f"seen-{gone}.work"):
        (folder / name).touch()
    made = at_once(16, lambda: run_folder.of_run(str(folder), ["python", "train.py"]))
    assert sum(isinstance(found, Path) for found in made) == 1
    assert [path.name for path in folder.iterdir()] == [".claim"]


@pytest.mark.parametrize("name", ["seen-{alive}.json", "mine.txt", "rank0.journal", "seen-x.json", ""])
def test_what_may_be_somebodys_stays(name: str, tmp_path: Path) -> None:
    names = {".claim", name.format(alive=os.getpid())} | ({"seen-999999999.json"} if name else set())
    names -= {""}
    for each in names:
        (tmp_path / each).touch()
    with pytest.raises(GobrrrError, match="is not empty"):
        run_folder.of_run(str(tmp_path), ["python", "train.py"])
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o755)
    run_folder.of_run(str(tmp_path / "mine"), ["python", "train.py"])
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("command", "name"), [
    (["python", "-"], "stdin"), (["python", "-m", "a.b"], "a.b"), (["torchrun"], "torchrun"),
    (["python", "../x y.py"], "x_y"), (["python", "/"], "run"), (["sh", "-c", "x"], "sh"),
    (["torchrun", "--nproc-per-node", "2", "train.py", "--to", "b.py"], "train"),
    (["accelerate", "launch", "train.py"], "train"), (["python", "-m", "torch.distributed.run", "train.py"], "train"),
    (["python", "-m", "pkg.train", "--config", "cfg.py"], "pkg.train"), (["python", "train", "--to", "x.py"], "train"),
])  # fmt: skip
def test_a_folder_is_named_after_the_program(
    command: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_folder.of_run(None, command).name.startswith(f"{name}-20")
