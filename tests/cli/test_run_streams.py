"""The program has the descriptors that it would have alone, open and closed; nothing of ours lands in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAMS, Done, Runner

DESCRIPTORS = PROGRAMS / "descriptors.py"


def both(redirected: str, gobrrr: Runner, folder: Path) -> tuple[tuple[Done, str], tuple[Done, str]]:
    """The program as bash starts it plain, then under gobrrr, with what it wrote of its descriptors."""
    (folder / "conf").write_text("configured")
    found = []
    for number, start in enumerate(([sys.executable], [*gobrrr.command, "run"])):
        line = f'"$@" {DESCRIPTORS} seen{number} {redirected}'
        done = subprocess.run(["bash", "-c", line, "bash", *start], env=gobrrr.env, cwd=folder, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=120)  # fmt: skip
        found.append((Done(done.returncode, done.stdout, done.stderr), (folder / f"seen{number}").read_text()))
    return found[0], found[1]


@pytest.mark.parametrize("redirected", ["3< conf", "<(echo conf)", "3< conf 7>> log 9<&3", "3<> conf 0<&-"])
def test_inherited_descriptors_reach_the_program(redirected: str, gobrrr: Runner, tmp_path: Path) -> None:
    (plain, held), (watched, watched_held) = both(redirected, gobrrr, tmp_path)
    assert watched_held == held
    assert (watched.code, watched.out) == (plain.code, plain.out)
    assert ("configured" in plain.out.decode()) == ("3<" in redirected)


@pytest.mark.parametrize("redirected", [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-", "> /dev/full 2>&-"])
def test_closed_streams_are_closed_and_cost_no_exit_code(redirected: str, gobrrr: Runner, tmp_path: Path) -> None:
    (plain, held), (watched, watched_held) = both(redirected, gobrrr, tmp_path)
    assert watched_held == held
    assert (watched.code, watched.out) == (plain.code, plain.out)
    assert watched.err.startswith(plain.err)
    assert b"Traceback" not in watched.err


def test_an_error_of_ours_without_a_stderr_goes_nowhere(gobrrr: Runner, tmp_path: Path) -> None:
    for redirected in ("2>&-", "2> >(exec true; sleep 0.1)", "2>/dev/full"):
        line = f'"$@" run no_such.py {redirected}'
        done = subprocess.run(["bash", "-c", line, "bash", *gobrrr.command], env=gobrrr.env, cwd=tmp_path,
                              capture_output=True, timeout=60)  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (2, b"", b""), redirected


@pytest.mark.parametrize("words", [["explain", "BRR101"], ["remedies"], ["--help"], ["completion", "bash"]])
def test_a_full_disk_under_stdout_is_one_line(words: list[str], gobrrr: Runner, tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = subprocess.run([*gobrrr.command, *words], env=gobrrr.env, cwd=tmp_path, stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[0] == "gobrrr: error: the output cannot be written: No space left on device"


def test_a_stderr_that_nobody_reads_any_more_costs_no_exit_code(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text("import time; time.sleep(0.2); raise SystemExit(7)")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*gobrrr.command, "run", "quiet.py"], env=gobrrr.env, cwd=tmp_path, stderr=writer,
                          stdout=subprocess.PIPE, timeout=60)  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stdout) == (7, b"")


def test_a_file_that_the_program_opens_as_descriptor_1_or_2_is_its_own(gobrrr: Runner, tmp_path: Path) -> None:
    """Even where watching fails: torch is none, and both files are open by then."""
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "opens.py").write_text(
        "import os\nfor name in ('one', 'two'):\n    os.open(name, os.O_CREAT | os.O_WRONLY)\nimport torch\n"
        "os.write(1, b'1'); os.write(2, b'2')\n"
    )
    line = '"$@" run opens.py >&- 2>&-'
    done = subprocess.run(["bash", "-c", line, "bash", *gobrrr.command], env=gobrrr.env, cwd=tmp_path, timeout=60)
    assert done.returncode == 0
    assert [(tmp_path / name).read_bytes() for name in ("one", "two")] == [b"1", b"2"]


def test_why_a_process_cannot_be_watched_is_told_after_it(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "uses.py").write_text("import sys, torch\nsys.exit('last')\n")
    done = gobrrr("run", "uses.py")
    assert done.code == 1
    assert done.text.startswith("last\ngobrrr: nothing was recorded: the process could not be watched: ")
    assert "AttributeError" in done.text and "; the program ended with 1" in done.text
