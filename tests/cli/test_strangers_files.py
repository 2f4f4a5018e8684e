"""Files from strangers: whatever a recording, receipt, recipe or folder says, it starts nothing and deletes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

from gobrrr.cli.main import main
from gobrrr.guard.model.verdict import Guarded
from gobrrr.recording.run_folder.run import load_run
from gobrrr.system.secrets import MASK
from gobrrr.trial.receipt import receipt as receipts
from gobrrr.trial.receipt.receipt import Receipt, Speedup
from gobrrr.trial.sandbox.limits import AT_HOME
from tests.cli.conftest import Runner
from tests.support import DESCENT

TRAINS = (
    DESCENT
    + """\
import torch
model = torch.nn.Linear(8, 8)
optimizer = Descent(model.parameters(), lr=0.1)
for step in range({steps}):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""
)
SECRET = "hunter2-hunter2"


@pytest.fixture(scope="module")
def recorded(env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run in `run`, of a program with secrets on its command line and in its environment."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").write_text(TRAINS.format(steps=60))
    words = ["run", "-o", "run", "--redact", "private-.*", "train.py", "--api-key", SECRET, "--lr", "0.1", "private-x"]
    said = {"WANDB_API_KEY": SECRET, "TORCH_API_TOKEN": SECRET, "NCCL_SOCKET_IFNAME": "private-net"}
    done = subprocess.run([sys.executable, "-m", "gobrrr", *words], cwd=folder, env=env | said, capture_output=True)
    assert done.returncode == 0, done.stderr
    (folder / "said").write_bytes(done.stdout + done.stderr)
    return folder


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Path]:
    """A program that a stranger ships: it answers as a Python with torch would, and leaves a trace when started."""
    program, trace = tmp_path / "python3.11", tmp_path / "was started"
    program.write_text(f"#!/bin/sh\ntouch '{trace}'\necho 9.9.9\n")
    program.chmod(0o755)
    yield program
    assert not trace.exists(), "what a stranger's file names was started"


def retold(journal: Path, **changes: Any) -> None:
    """The journal with other fields in its start record, checksums and all."""
    data, out, at = journal.read_bytes(), b"", 0
    while at < len(data):
        kind, length = struct.unpack_from("<cI", data, at)
        payload = data[at + 5 : at + 5 + length]
        at += 9 + length
        if kind == b"J" and (record := json.loads(payload)).get("type") == "start":
            payload = json.dumps(record | changes).encode()
        body = struct.pack("<cI", kind, len(payload)) + payload
        out += body + struct.pack("<I", zlib.crc32(body))
    journal.write_bytes(out)


def copied(recorded: Path, to: Path) -> Path:
    shutil.copytree(recorded / "run", to)
    return to


class TestRecordings:
    @pytest.mark.parametrize("torch", ["9.9.9", "", "\x1b[2J\x1b]0;x\x07"])
    def test_the_interpreter_that_a_recording_names_is_not_started(
        self,
        recorded: Path,
        trap: Path,
        tmp_path: Path,
        torch: str,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        theirs = copied(recorded, tmp_path / "theirs")
        retold(theirs / "rank0.journal", executable=str(trap), argv=[str(trap)], cwd=str(trap.parent), torch=torch)
        monkeypatch.setenv("COLUMNS", "100")
        code, said = main(["compare", str(recorded / "run"), str(theirs)]), capsys.readouterr().err
        assert code == 0, said
        assert "gobrrr machine --python PATH" in said and str(trap) not in said and "\x1b" not in said

    def test_one_s_own_is_compared_without_a_word(self, gobrrr: Runner, recorded: Path) -> None:
        done = gobrrr("compare", recorded / "run", recorded / "run")
        assert done.code == 0 and "--python" not in done.text

    def test_pipes_devices_and_huge_numbers_in_its_folder_are_told_and_nothing_worse(
        self, gobrrr: Runner, recorded: Path, tmp_path: Path
    ) -> None:
        theirs = copied(recorded, tmp_path / "theirs")
        os.mkfifo(theirs / "worker-1-1.json")
        (theirs / "worker-1-2.json").symlink_to("/dev/zero")
        (theirs / "worker-1-3.json").write_text("[" * 100_000)
        (theirs / "rank0.journal.error-99999999999999999999").touch()
        for trace in theirs.glob("*.json.gz"):
            trace.unlink()
            os.mkfifo(trace)
        assert gobrrr("compare", theirs, recorded / "run").code == 0
        os.mkfifo(theirs / "rank1.journal")
        done = gobrrr("compare", theirs, recorded / "run")
        assert done.code == 2 and "no plain file" in done.text and "Traceback" not in done.text

    def test_a_report_s_places_are_not_read_out(self, gobrrr: Runner, recorded: Path, tmp_path: Path) -> None:
        report = json.loads((recorded / "run" / "report.json").read_bytes())
        (tmp_path / "secret.py").write_text("word = 'of mine'\n")
        (tmp_path / "here").mkdir()
        saving = {"low_ns": 1, "expected_ns": 10**6, "ceiling_ns": 10**6}
        finding = {"code": "BRR208", "name": "x", "bound": "overhead", "severity": "critical", "saving": saving,
                   "message": "m", "where": [{"file": str(tmp_path / "secret.py"), "line": 1}]}  # fmt: skip
        report["findings"] = [finding]
        (tmp_path / "here" / "report.json").write_text(json.dumps(report))
        done = replace(gobrrr, folder=tmp_path / "here")("report", "report.json")
        assert done.code == 0 and b"secret.py:1" in done.out and b"of mine" not in done.out
        assert b"of mine" in gobrrr("report", "here/report.json").out


class TestLiveRuns:
    def test_ceilings_are_those_of_the_python_that_was_typed(self, tmp_path: Path) -> None:
        from gobrrr.pipeline.ceilings import interpreter

        python = tmp_path / "python3.12"
        for file, text in (
            (python, ""),
            (tmp_path / "launch", f"#!{python} -u\n"),
            (tmp_path / "shell", "#!/bin/sh\n"),
        ):
            file.write_text(text)
            file.chmod(0o755)
        (tmp_path / "relative").write_text("#!python3\n")
        (tmp_path / "relative").chmod(0o755)
        assert interpreter([str(python), "train.py"]) == str(python)
        assert interpreter([str(tmp_path / "launch"), "train.py"]) == str(python)
        for word in ("shell", "relative", "absent", "mypython"):
            assert interpreter([str(tmp_path / word)]) == sys.executable
        assert interpreter([]) == sys.executable

    def test_a_journal_that_the_program_writes_itself_starts_nothing(self, gobrrr: Runner, trap: Path) -> None:
        record = json.dumps({"type": "start", "executable": str(trap), "torch": "9.9.9"}).encode()
        body = struct.pack("<cI", b"J", len(record)) + record
        (gobrrr.folder / "train.py").write_text(
            TRAINS.format(steps=30)
            + f"import glob\nopen(glob.glob('run/')[0] + 'rank7.journal', 'wb').write({body!r} + "
            f"{struct.pack('<I', zlib.crc32(body))!r})\n"
        )
        done = gobrrr("run", "-o", "run", "train.py")
        assert done.code == 0 and "Traceback" not in done.text, done.text


class TestSecrets:
    def test_no_file_and_no_line_holds_one(self, recorded: Path) -> None:
        files = [path for path in recorded.rglob("*") if path.is_file()]
        assert len(files) > 3
        for path in files:
            assert SECRET.encode() not in path.read_bytes() and b"private-x" not in path.read_bytes(), path

    def test_what_is_none_stays(self, recorded: Path) -> None:
        report = json.loads((recorded / "run" / "report.json").read_bytes())
        assert report["command"][1:] == ["train.py", "--api-key", MASK, "--lr", "0.1", MASK]
        assert report["schema"] == "gobrrr.report/1"

    def test_a_report_says_what_its_run_was_started_with(self, recorded: Path) -> None:
        report = json.loads((recorded / "run" / "report.json").read_bytes())
        setup, script = report["setup"], (recorded / "train.py").read_bytes()
        assert setup["script"] == hashlib.sha256(script).hexdigest()[:16] and setup["began_ns"] > 0
        assert setup["variables"]["TORCH_API_TOKEN"] == setup["variables"]["NCCL_SOCKET_IFNAME"] == MASK
        assert {"gobrrr", "python", "torch"} <= set(report["versions"])

    def test_reports_are_their_owner_s(self, recorded: Path) -> None:
        assert (recorded / "run" / "report.json").stat().st_mode & 0o777 == 0o600

    def test_a_recording_says_neither_command_nor_interpreter(self, recorded: Path) -> None:
        data = (recorded / "run" / "rank0.journal").read_bytes()
        assert b"train.py --" not in data and b'"argv"' not in data and b'"executable"' not in data
        assert load_run(recorded / "run")[0].start.torch

    @pytest.mark.parametrize("pattern", ["(", "x*", ""])
    def test_a_pattern_that_is_none_is_told(self, gobrrr: Runner, pattern: str) -> None:
        done = gobrrr("run", "--redact", pattern, "train.py")
        assert done.code == 2 and "--redact" in done.text and "Traceback" not in done.text

    def test_an_earlier_report_is_redacted_when_shown(self, gobrrr: Runner, recorded: Path) -> None:
        done = gobrrr("report", recorded / "run", "--format", "json", "--redact", "train")
        assert json.loads(done.out)["command"][1] == f"{MASK}.py"


RECEIPT = Receipt(
    kept=("fused_optimizer",), speedup=Speedup(2, 1.5, 3), guard=Guarded(verdict="exact"), command=("/bin/sh", "x.sh")
)


class TestReceipts:
    def receipt(self, place: Path, **changes: Any) -> Path:
        found = msgspec.structs.replace(RECEIPT, **{"folder": str(place), **changes})
        receipts.write(found, place / "receipt.json")
        (place / "x.sh").write_text(f"touch '{place}/was started'\n")
        return place / "receipt.json"

    def test_nothing_is_started_where_nobody_agrees_and_nothing_deleted(self, gobrrr: Runner, tmp_path: Path) -> None:
        (tmp_path / "verify").mkdir()
        (tmp_path / "verify" / "thesis.tex").write_text("years")
        done = gobrrr("verify", self.receipt(tmp_path), stdin=subprocess.DEVNULL)
        assert done.code == 4 and "/bin/sh x.sh" in done.text and str(tmp_path) in done.text
        assert "fused_optimizer" in done.text and "--yes" in done.text
        assert not (tmp_path / "was started").exists() and (tmp_path / "verify" / "thesis.tex").exists()

    def test_with_yes_it_is_shown_and_started_and_nothing_deleted(self, gobrrr: Runner, tmp_path: Path) -> None:
        (tmp_path / "verify").mkdir()
        (tmp_path / "verify" / "thesis.tex").write_text("years")
        command = (sys.executable, "-c", "print('no steps')")
        done = gobrrr("verify", "--yes", self.receipt(tmp_path, command=command), stdin=subprocess.DEVNULL)
        assert done.code == 2 and "could not be measured" in done.text and "no steps" in done.text
        assert sorted(path.name for path in tmp_path.iterdir()) == ["receipt.json", "verify", "x.sh"]
        assert (tmp_path / "verify" / "thesis.tex").exists()

    @pytest.mark.parametrize(
        ("command", "shown"),
        [
            (("sh", "-c", "\x1b]0;rm -rf ~\x07ls"), "\\x1b]0;rm -rf ~\\x07ls"),
            (("sh", "-c", "a\nb"), "a\\nb"),
            (("sh", "\u202egnp.x"), "\\u202egnp.x"),
            (("sh", "\x1b[8mhidden\x1b[0m"), "\\x1b[8mhidden\\x1b[0m"),
            (("sh", "\u05d0"), "\\u05d0"),
        ],
    )
    def test_all_of_the_command_is_seen(
        self, gobrrr: Runner, tmp_path: Path, command: tuple[str, ...], shown: str
    ) -> None:
        done = gobrrr("verify", self.receipt(tmp_path, command=command), stdin=subprocess.DEVNULL)
        assert done.code == 4 and shown in done.text and not set(done.text) & {"\x1b", "\x07", "\u202e", "\u05d0"}

    def test_what_is_too_long_to_read_is_not_asked_about(self, gobrrr: Runner, tmp_path: Path) -> None:
        done = gobrrr("verify", self.receipt(tmp_path, command=("sh", "-c", "true " * 2000 + "; rm x")))
        assert done.code == 4 and "too long" in done.text

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"command": ()}, "names no program"),
            ({"folder": "/nowhere/at/all"}, "is gone"),
            ({"kept": ()}, "nothing to measure again"),
            ({"command": ("python", "t.py", "--token", MASK)}, "type it: gobrrr verify"),
        ],
    )
    def test_what_cannot_be_repeated_is_told(
        self, gobrrr: Runner, tmp_path: Path, changes: dict[str, Any], said: str
    ) -> None:
        done = gobrrr("verify", "--yes", self.receipt(tmp_path, **changes))
        assert done.code == 2 and said in done.text and "Traceback" not in done.text

    def test_a_typed_program_is_started_where_it_is_typed_and_must_be_the_receipt_s(
        self, gobrrr: Runner, tmp_path: Path
    ) -> None:
        (tmp_path / "t.py").write_text("import sys; sys.exit(f'was given {len(sys.argv)} words')")
        file = self.receipt(tmp_path, command=("python", "t.py", "--token", MASK), folder="/nowhere")
        other = gobrrr("verify", file, "--", "t.py", "--key", "x")
        assert other.code == 2 and "not the program of the receipt" in other.text
        done = gobrrr("verify", file, "--", "t.py", "--token", SECRET)
        assert done.code == 2 and "was given 3 words" in done.text and SECRET not in done.text

    def test_it_writes_where_it_is_let(
        self, gobrrr: Runner, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        outside = tmp_path_factory.mktemp("outside")
        command = (sys.executable, "-c", f"open({str(outside / 'x')!r}, 'w')")
        file = self.receipt(tmp_path, command=command)
        done = gobrrr("verify", "--yes", file)
        assert done.code == 2 and "--allow-writes DIR" in done.text and not (outside / "x").exists()
        assert "no such folder" in gobrrr("verify", "--yes", "--allow-writes", tmp_path / "no", file).text
        for options in (("--allow-writes", outside), ("--unprotected",)):
            assert gobrrr("verify", "--yes", *options, file).code == 2  # it makes no step
            (outside / "x").unlink()

    def test_one_s_own_goes_on_without_asking(self, gobrrr: Runner, tmp_path: Path, env: dict[str, str]) -> None:
        file = self.receipt(tmp_path, command=(sys.executable, "-c", "print('no steps')"))
        program = (
            "import sys; from pathlib import Path; from gobrrr.trial.receipt import receipt as r; "
            "f = Path(sys.argv[1]); r.write(r.marked(r.read(f)), f)"
        )
        subprocess.run([sys.executable, "-c", program, str(file)], env=env, check=True)
        done = gobrrr("verify", file, stdin=subprocess.DEVNULL)
        assert done.code == 2 and "could not be measured" in done.text
        file.write_text(file.read_text().replace("no steps", "no step"))
        assert gobrrr("verify", file, stdin=subprocess.DEVNULL).code == 4

    @pytest.mark.parametrize(("answer", "code"), [(b"y\n", 2), (b"yes\n", 2), (b"\n", 4), (b"n\n", 4), (b"\x04", 4)])
    def test_a_typed_answer(self, env: dict[str, str], tmp_path: Path, answer: bytes, code: int) -> None:
        file = self.receipt(tmp_path, command=(sys.executable, "-c", "print('no steps')"))
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "gobrrr", "verify", str(file)], env=env, stdin=theirs, stderr=subprocess.PIPE
        ) as process:
            os.write(ours, answer)
            said = process.communicate(timeout=100)[1]
        os.close(ours)
        os.close(theirs)
        assert process.returncode == code, said
        assert b"run it? [y/N]" in said


class TestTunings:
    def test_a_stranger_s_diagnosis_is_made_anew_and_kept(self, tmp_path: Path, recorded: Path) -> None:
        import io
        import time

        from gobrrr.pipeline import first_run

        folder = tmp_path / "diagnosis"
        copied(recorded, folder)
        (folder / "thesis.tex").write_text("years")
        (tmp_path / "p").mkdir()
        (tmp_path / "p" / "t.py").write_text("import torch")
        said = io.StringIO()
        clock = first_run.Clock(time.monotonic(), 200.0)
        with pytest.raises(first_run.GobrrrError, match="no step"):
            first_run.diagnosed([sys.executable, "t.py"], tmp_path / "p", folder, said, AT_HOME, (), clock)
        assert (tmp_path / "diagnosis-1" / "thesis.tex").exists()
        assert not (folder / "thesis.tex").exists() and "diagnosing" in said.getvalue()

    def test_what_was_interrupted_in_its_first_trial_goes_on(self, tmp_path: Path) -> None:
        from gobrrr.cli.verbs import tune

        with pytest.raises(tune.GobrrrError, match="holds no tuning"):
            tune._resumed(str(tmp_path))
        (tmp_path / "diagnosis").mkdir()
        (tmp_path / "diagnosis" / "report.mark").touch()
        assert tune._resumed(str(tmp_path)) == tmp_path
        (tmp_path / "diagnosis" / "report.mark").unlink()
        (tmp_path / "receipt.json").touch()
        assert tune._resumed(str(tmp_path)) == tmp_path

    def test_links_in_a_resumed_folder_are_refused(self, gobrrr: Runner, tmp_path: Path) -> None:
        (tmp_path / "out" / "diagnosis").mkdir(parents=True)
        (tmp_path / "out" / "journal.jsonl").touch()
        (tmp_path / "t.py").write_text("raise SystemExit('was started')")
        (tmp_path / "mine").mkdir()
        for name in ("arms", "diagnosis/report.json", ".gobrrr-output", "receipt.json"):
            (tmp_path / "out" / name).symlink_to(tmp_path / "mine")
            done = gobrrr("tune", "--resume", "out", "t.py")
            assert done.code == 2 and "is a symbolic link" in done.text and "was started" not in done.text
            (tmp_path / "out" / name).unlink()


def test_a_recipe_s_words_do_not_reach_the_terminal_as_they_are(gobrrr: Runner) -> None:
    (gobrrr.folder / "train.py").write_text("import torch\n")
    (gobrrr.folder / "recipe.toml").write_text(
        'schema = "gobrrr.recipe/1"\n[fits]\ntorch = "\\u001b[2J1.0"\n[[remedies]]\nname = "fused_optimizer"\n'
    )
    done = gobrrr("run", "--recipe", "recipe.toml", "train.py")
    assert "not the one it was measured with" in done.text and "\x1b" not in done.text


def test_modules_that_lie_in_the_current_folder_are_not_imported(gobrrr: Runner, recorded: Path) -> None:
    for name in ("numpy", "msgspec", "rich"):
        (gobrrr.folder / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
    done = gobrrr("compare", recorded / "run", recorded / "run")
    assert done.code == 0, done.text
