"""`gobrrr completion`: what a shell offers is what the verbs' own parsers take."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gobrrr.cli.completion import SHELLS, every_verb
from gobrrr.cli.main import VERBS, load, main

pytest.importorskip("shtab")


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def offered(words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What bash offers behind these words."""
    (folder / "gobrrr.bash").write_text(script("bash", capsys))
    typed = words.split(" ")
    ask = (
        'source gobrrr.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9; _shtab_gobrrr gobrrr "${@: -1}"; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "--norc", "-c", ask, "bash", "gobrrr", *typed], cwd=folder, capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert done.stderr == ""
    return sorted(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "some"),
    [
        ("ch", {"check"}), ("", {verb.name for verb in VERBS}), ("check --to", {"--tolerance"}),
        ("check --against b", {"base.json"}), ("report --format s", {"sarif"}), ("explain BRR40", {"BRR401", "BRR405"}),
        ("run tr", {"train.py"}), ("run train.py --epochs b", {"base.json"}), ("completion f", {"fish"}),
    ],
)  # fmt: skip
def test_bash_offers_what_the_parsers_take(
    words: str, some: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("base.json", "train.py"):
        (tmp_path / name).touch()
    found = offered(words, tmp_path, capsys)
    last = words.rpartition(" ")[2]
    assert some <= set(found) and all(word.startswith(last) for word in found)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_option_of_a_verb_is_in_every_script(verb, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    load(verb).prepare(parser)
    shown = [a.option_strings[-1] for a in parser._actions if a.option_strings and a.help != argparse.SUPPRESS]
    listed = re.search(rf"_shtab_gobrrr_{verb.name}_option_strings=\((.*?)\)\n", script("bash", capsys))
    assert listed and set(shown) <= set(shlex.split(listed[1]))
    for shell in ("zsh", "fish"):
        text = script(shell, capsys)
        assert all(option.lstrip("-") in text for option in shown)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_one_that_its_shell_reads(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    (tmp_path / "script").write_text(script(shell, capsys))
    assert subprocess.run([shell, "-n", "script"], cwd=tmp_path, capture_output=True).returncode == 0


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "cmd"]) == 2
    assert "invalid choice: 'cmd'" in capsys.readouterr().err


def test_no_verb_is_forgotten_and_nothing_heavy_is_imported() -> None:
    names = next(a for a in every_verb()._actions if isinstance(a, argparse._SubParsersAction)).choices
    assert list(names) == [verb.name for verb in VERBS]
    program = "import sys; from gobrrr.cli.completion import every_verb; every_verb(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
