"""Kept ceilings: found again, and never a traceback whatever lies in the cache or in the other interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gobrrr.errors import GobrrrError, TorchMissing
from gobrrr.machine.measure import command, store
from gobrrr.machine.model import machine as model
from gobrrr.machine.model.bounds import bounded
from gobrrr.system import quiet
from tests.support.machine_samples import figure, machine


@pytest.fixture
def measurings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The interpreters that were asked to measure, instead of measuring."""
    asked: list[str] = []

    def instead(interpreter: str) -> model.Machine:
        asked.append(interpreter)
        return machine(fingerprint="of the other process")

    monkeypatch.setattr(store, "measure_in", instead)
    monkeypatch.setattr(store, "torch_version", lambda interpreter: "2.13.0")
    return asked


def kept(folder: Path) -> Path:
    (path,) = folder.glob("machine-*.json")
    return path


class TestCache:
    def test_measures_once(self, tmp_path: Path, measurings: list[str]) -> None:
        notes: list[str] = []
        first = store.load_or_measure(notify=notes.append, folder=tmp_path)
        assert store.load_or_measure(notify=notes.append, folder=tmp_path) == first
        assert measurings == [sys.executable]
        assert len(notes) == 1 and "at most 20 s" in notes[0]
        assert kept(tmp_path).name == f"machine-{first.fingerprint}.json"
        assert [path.name for path in tmp_path.iterdir()] == [kept(tmp_path).name], "a temporary file is left"

    def test_doubtful_figures_are_measured_again_when_it_is_quiet_and_merged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[object, ...]] = []

        def measure_in(interpreter: str, *how: object) -> model.Machine:
            asked.append(how)
            steady = figure(1.9, "cores")
            return machine(effective_cores=steady if how else figure(1.0, "cores", spread=0.8), doubts=("Old.",))

        monkeypatch.setattr(store, "torch_version", lambda interpreter: "2.13.0")
        monkeypatch.setattr(store, "measure_in", measure_in)
        store.load_or_measure(folder=tmp_path)
        for busy in (1.5, None):
            monkeypatch.setattr(quiet, "busy_cores", lambda busy=busy: busy)
            store.load_or_measure(folder=tmp_path)
            assert len(asked) == 1, "measured again on a machine that is busy, or may be"
        monkeypatch.setattr(quiet, "busy_cores", lambda: 0.1)
        assert store.load_or_measure(folder=tmp_path).doubts == ()
        assert asked[1:] == [(store.REPEAT_SECONDS, ["cores"])]
        store.load_or_measure(folder=tmp_path)
        assert len(asked) == 2, "nothing is doubtful any more"

    def test_what_stays_doubtful_is_not_measured_for_ever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[object] = []
        monkeypatch.setattr(store, "torch_version", lambda interpreter: "2.13.0")
        monkeypatch.setattr(quiet, "busy_cores", lambda: 0.0)
        monkeypatch.setattr(
            store, "measure_in",
            lambda *how: asked.append(how) or machine(effective_cores=figure(1.0, "cores", spread=0.8)),
        )  # fmt: skip
        for _ in range(store.MOST_REPEATS + 4):
            store.load_or_measure(folder=tmp_path)
        assert len(asked) == 1 + store.MOST_REPEATS

    def test_refresh_measures_again(self, tmp_path: Path, measurings: list[str]) -> None:
        store.load_or_measure(folder=tmp_path)
        store.load_or_measure(refresh=True, folder=tmp_path)
        assert len(measurings) == 2

    def test_another_torch_is_another_machine(
        self, tmp_path: Path, measurings: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.load_or_measure(folder=tmp_path)
        monkeypatch.setattr(store, "torch_version", lambda interpreter: "2.14.0")
        store.load_or_measure(folder=tmp_path)
        assert len(measurings) == 2
        assert len(list(tmp_path.iterdir())) == 2

    @pytest.mark.parametrize(
        "damage",
        [
            b"",
            b"{",
            b"null",
            b"[" * 100_000,
            b"\xff\xfe\x00",
            b"{}" + b" " * (2 << 20),
            b'{"schema": "gobrrr.machine/0"}',
        ],
        ids=["empty", "cut", "null", "deep", "no text", "huge", "old"],
    )
    def test_damage_is_measured_over_with_a_note(self, tmp_path: Path, measurings: list[str], damage: bytes) -> None:
        good = store.load_or_measure(folder=tmp_path)
        kept(tmp_path).write_bytes(damage)
        notes: list[str] = []
        assert store.load_or_measure(notify=notes.append, folder=tmp_path) == good
        assert "damaged" in notes[0]
        assert bounded(store.decode(kept(tmp_path).read_bytes())) == good

    @pytest.mark.parametrize(
        ("right", "wrong"),
        [
            (b'"gobrrr.machine/1"', b'"gobrrr.machine/2"'),
            (b'"dispatch":{"median":1000.0,"low":975.0', b'"dispatch":{"median":1000.0,"low":-975.0'),
            (b'"dispatch":{"median":1000.0,"low":975.0', b'"dispatch":{"median":1000.0,"low":1975.0'),
            (b'"dispatch":{"median":1000.0', b'"dispatch":{"median":1e999'),
            (b'"dispatch":{"median":1000.0', b'"dispatch":{"median":"fast"'),
        ],
    )
    def test_figures_that_cannot_be_are_not_believed(self, right: bytes, wrong: bytes) -> None:
        text = msgspec.json.encode(machine())
        assert right in text
        with pytest.raises(msgspec.MsgspecError):
            store.decode(text.replace(right, wrong))

    def test_a_file_under_another_machine_s_name_is_not_used(self, tmp_path: Path, measurings: list[str]) -> None:
        store.load_or_measure(folder=tmp_path)
        kept(tmp_path).write_bytes(msgspec.json.encode(machine(fingerprint="another")))
        store.load_or_measure(folder=tmp_path)
        assert len(measurings) == 2

    def test_a_folder_that_cannot_be_written_is_a_note(self, tmp_path: Path, measurings: list[str]) -> None:
        (tmp_path / "file").write_text("")
        notes: list[str] = []
        found = store.load_or_measure(notify=notes.append, folder=tmp_path / "file" / "below")
        assert found.cpu == "AMD EPYC Example"
        assert any("set GOBRRR_CACHE" in note for note in notes)

    def test_a_folder_where_the_file_should_be_is_a_note(self, tmp_path: Path, measurings: list[str]) -> None:
        store.load_or_measure(folder=tmp_path)
        path = kept(tmp_path)
        path.unlink()
        path.mkdir()
        notes: list[str] = []
        assert store.load_or_measure(notify=notes.append, folder=tmp_path).logical_cores == 2
        assert any("cannot be read" in note for note in notes)
        assert not list(tmp_path.glob("*.tmp"))

    @pytest.mark.parametrize(
        ("environ", "folder"),
        [
            ({"GOBRRR_CACHE": "/x/y", "XDG_CACHE_HOME": "/z"}, Path("/x/y")),
            ({"XDG_CACHE_HOME": "/z"}, Path("/z/gobrrr")),
            ({"XDG_CACHE_HOME": "relative"}, Path("~/.cache/gobrrr").expanduser()),
            ({}, Path("~/.cache/gobrrr").expanduser()),
        ],
    )
    def test_where_it_lies(self, environ: dict[str, str], folder: Path) -> None:
        assert store.cache_folder(environ) == folder


def interpreter(folder: Path, script: str) -> str:
    """A stand-in for a Python: a shell script that does as it is told."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


class TestOtherInterpreter:
    def test_without_torch_says_how_to_get_it(self, tmp_path: Path) -> None:
        python = interpreter(tmp_path, "echo")
        with pytest.raises(TorchMissing) as error:
            store.load_or_measure(interpreter=python, folder=tmp_path)
        assert error.value.hint == f'{python} -m pip install "torch>=2.6"'
        assert "not installed" in error.value.message

    def test_with_an_old_one_too(self, tmp_path: Path) -> None:
        with pytest.raises(TorchMissing, match=r"torch 2\.4\.1 is too old"):
            store.load_or_measure(interpreter=interpreter(tmp_path, "echo 2.4.1"), folder=tmp_path)

    def test_one_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(GobrrrError, match="does not start: No such file"):
            store.load_or_measure(interpreter=str(tmp_path / "none"), folder=tmp_path)

    def test_one_that_fails_says_its_last_line(self, tmp_path: Path) -> None:
        python = interpreter(tmp_path, "echo first >&2; echo last words >&2; exit 3")
        with pytest.raises(GobrrrError, match="does not run: last words"):
            store.load_or_measure(interpreter=python, folder=tmp_path)
        with pytest.raises(GobrrrError, match="measuring the machine failed: last words"):
            store.measure_in(python)

    def test_one_that_talks_nonsense(self, tmp_path: Path) -> None:
        with pytest.raises(GobrrrError, match="nothing that can be read"):
            store.measure_in(interpreter(tmp_path, "echo hello"))

    def test_chatter_before_the_result_is_ignored(self, tmp_path: Path) -> None:
        (tmp_path / "result").write_bytes(msgspec.json.encode(machine()))
        python = interpreter(tmp_path, f"echo a plugin says hello; cat {tmp_path}/result")
        assert store.measure_in(python) == machine()

    def test_gets_torch_s_own_thread_count_and_no_input(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.setenv("OMP_PROC_BIND", "true")
        python = interpreter(tmp_path, 'echo "x$OMP_NUM_THREADS-$OMP_PROC_BIND" >&2; cat >&2; exit 1')
        with pytest.raises(GobrrrError, match="x-true"):
            store.measure_in(python)


class TestMeasureModule:
    def test_the_schema_is_the_model_s(self) -> None:
        assert command.SCHEMA == model.SCHEMA

    @pytest.mark.parametrize(
        ("version", "old"),
        [("2.5.1", True), ("1.13.1+cu117", True), ("2.6.0", False), ("2.13.0+cpu", False), ("3.0a0+git", False)],
    )
    def test_how_old_is_too_old(self, version: str, old: bool) -> None:
        assert command.is_too_old(version) is old

    def test_needs_nothing_but_the_standard_library_and_torch(self) -> None:
        """Every module that the other interpreter imports, with our own dependencies made unimportable."""
        code = (
            "import sys\n"
            "for name in ('msgspec', 'rich', 'psutil', 'jinja2', 'numpy', 'torch'): sys.modules[name] = None\n"
            "import gobrrr.machine.measure.command, gobrrr.machine.measure.ceilings\n"
            "import gobrrr.machine.probe.fingerprint, gobrrr.machine.probe.system_probe\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_without_torch_has_an_exit_code_of_its_own(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(command, "torch_version", lambda: None)
        assert command.main([]) == command.TORCH_MISSING
        assert capsys.readouterr().err == "torch is missing\n"


def test_from_end_to_end_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(store, "_MEASURE", store._MEASURE.replace("main()", "main(['0.2'])"))
    (tmp_path / "random.py").write_text("raise SystemExit('a file of the current folder was imported')")
    monkeypatch.chdir(tmp_path)
    found = store.load_or_measure(folder=tmp_path / "cache")
    assert found.torch_version and found.threads >= 1
    assert kept(tmp_path / "cache").name == f"machine-{found.fingerprint}.json"
    assert store.decode(kept(tmp_path / "cache").read_bytes()) == found
