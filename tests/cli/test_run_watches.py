"""Which processes are watched, and that all others see nothing of it: by what Python runs, not by its arguments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gobrrr.capture.process.bootstrap import is_launcher
from gobrrr.capture.process.launch import kept_out_by
from tests.cli.conftest import Runner

OURS = "import os, sys; print([n for n in os.environ if 'GOBRRR_CAPTURE' in n or n == 'PYTHONPATH'], sys.argv[1:])\n"


@pytest.mark.parametrize(("orig", "argv", "launches"), [
    (["python", "train.py", "accelerate"], ["train.py", "accelerate"], False),
    (["python", "-u", "train.py", "torchrun"], ["train.py", "torchrun"], False),
    (["python", "-m", "pkg", "torchrun"], ["-m", "torchrun"], False),
    (["python", "-X", "torchrun", "train.py"], ["train.py"], False),
    (["python", "train.py", "-m", "gobrrr"], ["train.py", "-m", "gobrrr"], False),
    (["python", "-c", "torchrun", "gobrrr"], ["-c", "gobrrr"], False),
    (["python", "torchrun.py"], ["torchrun.py"], False),
    (["python"], [""], False),
    (["python", "/bin/torchrun", "train.py"], ["/bin/torchrun", "train.py"], True),
    (["python", "-X", "dev", "-W", "ignore", "/bin/accelerate", "launch"], ["/bin/accelerate", "launch"], True),
    (["python", "-m", "torch.distributed.run", "x.py"], ["-m", "x.py"], True),
    (["python", "-u", "-W", "x", "-Bmgobrrr", "run"], ["-m", "run"], True),
])  # fmt: skip
def test_a_launcher_is_known_by_what_is_run(orig: list[str], argv: list[str], launches: bool) -> None:
    assert is_launcher(orig, argv) == launches


@pytest.mark.parametrize(("command", "option"), [
    ("python -I x.py", "-I"), ("python -uE x.py", "-E"), ("python -X utf8 -S -m x", "-S"), ("python -Xutf8 -I", "-I"),
    ("env A=1 python -I x.py", "-I"), ("./isolated x", "-I"), ("python -W ignore -I x", "-I"),
    ("python --check-hash-based-pycs never -E x", "-E"), ("python - -I", ""), ("python -m x -I", ""),
    ("python -c I -E", ""), ("python -WI x.py", ""), ("python -X I x.py", ""), ("python x.py -I", ""),
    ("python -s -P x.py -E", ""), ("sh -E", ""), ("./plain -I", ""), ("no-such-command -I", ""),
])  # fmt: skip
def test_a_python_that_will_not_hear_of_us_is_known(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, flag in (("isolated", " -I"), ("plain", "")):
        (tmp_path / name).write_text(f"#!{sys.executable}{flag}\n{OURS}")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    words = [sys.executable if word == "python" else word for word in command.split()]
    assert kept_out_by(words) == option


@pytest.mark.parametrize("words", [
    ["see.py", "accelerate"], ["-m", "see", "torchrun"], ["--", sys.executable, "-I", "see.py"],
    ["--", sys.executable, "-X", "utf8", "-S", "-m", "see"], ["--", "env", sys.executable, "-E", "see.py"],
    ["--", "sh", "-c", f"{sys.executable} see.py gobrrr"], ["--", sys.executable, "-mfolder.see", "x"],
])  # fmt: skip
def test_no_program_sees_our_variables(words: list[str], gobrrr: Runner, plainly: Runner, tmp_path: Path) -> None:
    (tmp_path / "see.py").write_text(OURS)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "see.py").write_text(OURS)
    watched = gobrrr("run", *words)
    assert watched.code == 0, watched.text
    assert watched.out.startswith(b"[] "), watched.out
    assert watched.text.count("\n") == 1
    kept_out = bool({"-I", "-S", "-E"} & set(words))
    assert ("-I, -E and -S keep gobrrr out" in watched.text) == kept_out
    assert ("never imported torch" in watched.text) != kept_out


@pytest.mark.parametrize(("line", "seen"), [
    ("export PYTHONPATH=$PWD/lib:$PYTHONPATH", "lib:"), ("export PYTHONPATH=$PYTHONPATH:$PWD/lib", ":{}/lib"),
])  # fmt: skip
def test_what_a_shell_script_adds_to_the_path_stays(line: str, seen: str, gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "see.py").write_text("import os; print(os.environ['PYTHONPATH'])")
    for given in ({"PYTHONPATH": "/mine"}, {"PYTHONPATH": ""}):
        found = []
        for start in (["bash", "-c"], [*gobrrr.command, "run", "--", "bash", "-c"]):
            runner = Runner(start, gobrrr.env, tmp_path)
            found.append(runner(f"{line}; {sys.executable} see.py", environ=given).out)
        assert found[0] == found[1]
        assert b"/lib" in found[0]
