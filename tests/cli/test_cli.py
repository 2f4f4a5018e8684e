"""The command line: which verb gets which words, and how an error looks."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr import __version__
from gobrrr.cli import main as cli
from gobrrr.cli.main import VERBS, Verb, load, main, split_program
from gobrrr.errors import GobrrrError
from gobrrr.rules import pages as rule_pages


class Probe:
    """A verb that hands back what it was given."""

    seen: argparse.Namespace
    raises: BaseException | None = None

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--steps", type=int, default=0)
        parser.add_argument("-o", "--output")
        parser.add_argument("-q", "--quiet", action="store_true")

    def run(self, args: argparse.Namespace) -> int:
        self.seen = args
        if self.raises is not None:
            raise self.raises
        return 7


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    """`gobrrr probe`, for the length of one test."""
    command = Probe()
    monkeypatch.setattr(cli, "VERBS", (*VERBS, Verb("probe", "nowhere", "a verb of the tests")))
    monkeypatch.setattr(cli, "load", lambda verb: command)
    return command


def test_without_a_verb_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == listed
    assert all(f"  {verb.name} " in listed and verb.help in listed for verb in VERBS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gobrrr {__version__}\n"


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_each_verb_is_where_the_list_says(verb: Verb) -> None:
    module = load(verb)
    assert callable(module.prepare) and callable(module.run)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_each_verb_has_help(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main([verb.name, "--help"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: gobrrr {verb.name} ")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("explian", "did you mean gobrrr explain?"),
        ("train.py", "gobrrr run train.py"),
        ("gone.py", "a script is started by gobrrr run, and there is none of this name here"),
        ("xyz", "gobrrr --help lists the verbs"),
    ],
)
def test_an_unknown_verb_is_answered_with_the_likely_one(
    word: str, hint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    assert main([word]) == 2
    assert capsys.readouterr().err == f"gobrrr: error: there is no verb '{word}'\n  hint: {hint}\n"


def test_a_wrong_option_is_one_line_and_a_hint(probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--steps", "many"]) == 2
    error = capsys.readouterr().err
    assert error == "gobrrr: error: argument --steps: invalid int value: 'many'\n  hint: gobrrr probe --help\n"


def test_the_exit_code_is_the_verbs(probe: Probe) -> None:
    assert main(["probe", "--steps", "3"]) == 7
    assert probe.seen.steps == 3


def test_an_error_for_people_has_no_traceback_and_its_own_exit_code(
    probe: Probe, capsys: pytest.CaptureFixture[str]
) -> None:
    probe.raises = GobrrrError("no such file: a.py", "check the name", exit_code=66)
    assert main(["probe"]) == 66
    assert capsys.readouterr().err == "gobrrr: error: no such file: a.py\n  hint: check the name\n"
    probe.raises = GobrrrError("no hint")
    assert main(["probe"]) == 2
    assert capsys.readouterr().err == "gobrrr: error: no hint\n"


def test_a_defect_of_our_own_keeps_its_traceback(probe: Probe) -> None:
    probe.raises = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        main(["probe"])


def test_interrupting_it_exits_as_shells_expect(probe: Probe) -> None:
    for told, code in (((), 130), ((143,), 143), (("stopped",), 130)):
        probe.raises = KeyboardInterrupt(*told)
        assert main(["probe"]) == code


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["train.py", "--steps", "5", "-o", "x"], 0),
        (["--steps", "5", "train.py", "--steps", "6"], 2),
        (["--steps=5", "-oDIR", "-q", "train.py", "-q"], 3),
        (["-o", "-q", "-q", "train.py"], 3),
        (["-q", "-m", "package.train", "-m", "x"], 1),
        (["--steps", "5", "--", "torchrun", "--", "train.py"], 2),
        (["-", "--steps", "5"], 0),
        (["--quiet"], 1),
        ([], 0),
    ],
)
def test_the_program_starts_where_gobrrrs_options_end(words: list[str], own: int) -> None:
    parser = argparse.ArgumentParser()
    Probe().prepare(parser)
    assert split_program(parser, words) == (words[:own], words[own:])


@given(st.lists(st.sampled_from(["--steps", "-q", "-m", "--", "--unknown", "-o=x", "-", "", "é", "--help"])))
def test_a_programs_arguments_reach_it_untouched(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    Probe().prepare(parser)
    assert split_program(parser, ["-q", "train.py", *words]) == (["-q"], ["train.py", *words])
    own, program = split_program(parser, words)
    assert own + program == words


def test_a_verb_that_takes_a_program_gets_it_beside_its_options(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "VERBS", (Verb("probe", "nowhere", "a verb of the tests", takes_program=True),))
    assert main(["probe", "-o", "out", "-m", "package", "--steps", "4", "--help"]) == 7
    assert (probe.seen.output, probe.seen.steps) == ("out", 0)
    assert probe.seen.program == ["-m", "package", "--steps", "4", "--help"]


def gobrrr(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gobrrr", *words]
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


def test_as_a_module_it_is_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explian"])
    done = gobrrr("explian")
    assert (done.returncode, done.stderr) == (code, capsys.readouterr().err)


@pytest.mark.parametrize("verb", ["run", "tune", "report", "remedies"])
@pytest.mark.parametrize("start", ["-m gobrrr", "-c 'import sys; from gobrrr.cli.main import main; sys.exit(main())'"])
def test_where_the_folder_is_gone_it_is_said_in_one_line(verb: str, start: str, tmp_path) -> None:
    (tmp_path / "gone").mkdir()
    gone = f'rmdir "$PWD"; exec {sys.executable} {start} {verb} /x.py'
    done = subprocess.run(["sh", "-c", gone], cwd=tmp_path / "gone", capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "gobrrr: error: the current folder is gone" and "Trace" not in done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "gobrrr", "--help"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=buffered)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.fixture
def pages(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """Two pages, whatever the catalogue holds."""
    for code in ("BRR101", "BRR402"):
        (tmp_path / "band").mkdir(exist_ok=True)
        (tmp_path / "band" / f"{code}.md").write_text(f"# {code}\n\nWhat **it** means: µs.\n", encoding="utf-8")
    monkeypatch.setattr(rule_pages, "FOLDER", tmp_path)
    return tmp_path


@pytest.mark.parametrize("word", ["BRR101", "brr101", "101", "float64-by-accident"])
def test_explain_shows_the_page_as_it_stands_to_a_pipe(pages, word, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    assert capsys.readouterr().out == "# BRR101\n\nWhat **it** means: µs.\n"


@pytest.mark.parametrize("name", ["freeze_unused", "fused_optimizer"])
def test_explain_shows_the_page_of_an_edit_and_of_a_remedy(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 0
    assert capsys.readouterr().out.startswith(f"# {name}")


def test_explain_formats_for_a_terminal(pages, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["explain", "BRR101"]) == 0
    shown = capsys.readouterr().out
    assert "**" not in shown and "BRR101" in shown and "it" in shown


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("BRR403", "did you mean BRR402?"),
        ("float64-by-acident", "did you mean BRR101?"),
        ("../../secret", "gobrrr explain lists them all"),
    ],
)
def test_explain_suggests_near_codes(pages, word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 2
    error, shown = capsys.readouterr().err.splitlines()
    assert error == f"gobrrr: error: there is no code '{word}'"
    assert shown.startswith(f"  hint: {hint[:-1]}")


def test_explain_without_a_code_lists_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    from gobrrr.rules import load

    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:-2]] == [[rule.code, rule.name] for rule in load().values()]


def test_explain_has_a_page_for_every_rule() -> None:
    from gobrrr.rules import load

    assert sorted(load()) == rule_pages.codes()


# People's scripts hold these: an option may join, and none may go or change its meaning.
SURFACE = {
    "prove": {
        "--accept",
        "--args",
        "--env",
        "--from",
        "--help",
        "--json",
        "--measure",
        "--minutes",
        "--patch",
        "--rename",
        "--seed",
        "--to",
        "--with",
        "-h",
        "-o",
    },
    "run": {
        "--baseline",
        "--budget",
        "--help",
        "--json",
        "--portability",
        "--recipe",
        "--steps",
        "--stop-after",
        "-h",
        "-o",
    },
    "tune": {
        "--help",
        "--minutes",
        "--only",
        "--patch",
        "--propose",
        "--price-per-hour",
        "--redact",
        "--remedies",
        "--resume",
        "--seed",
        "--try",
        "--without",
        "-h",
        "-o",
    },
    "attach": {"--format", "--help", "--json", "--output", "--rate", "--seconds", "-h", "-o"},
    "top": {"--format", "--help", "--json", "--once", "-h"},
    "sweep": {"--batch", "--help", "--json", "--latency", "--memory", "--minutes", "--redact", "--vary", "-h", "-o"},
    "fit": {"--batch", "--device", "--help", "--json", "--memory", "--minutes", "--redact", "--vary", "-h", "-o"},
    "scale": {"--as", "--help", "--json", "--link", "--ranks", "-h"},
    "verify": {"--help", "--minutes", "--seed", "--yes", "-h"},
    "remedies": {"--help", "-h"},
    "compare": {"--format", "--help", "--ops", "--output", "-h", "-o"},
    "history": {"--format", "--help", "--last", "--output", "--program", "-h", "-o"},
    "check": {
        "--against",
        "--fail-on",
        "--format",
        "--help",
        "--history",
        "--redact",
        "--shares",
        "--tolerance",
        "-h",
        "-o",
    },
    "diagnose": {
        "--format",
        "--help",
        "--jobs",
        "--json",
        "--machine",
        "--max-depth",
        "--max-events",
        "--max-file-bytes",
        "--max-journal-frame-bytes",
        "--max-ratio",
        "--max-unpacked-bytes",
        "--max-value-bytes",
        "--portability",
        "-h",
    },
    "report": {"--format", "--help", "--output", "--redact", "-h", "-o"},
    "completion": {"--help", "-h"},
    "explain": {"--help", "-h"},
    "mcp": {"--help", "-h"},
    "lab": {"--all", "--compare", "--help", "--minutes", "--output", "-h", "-o"},
    "machine": {"--help", "--json", "--python", "--refresh", "-h"},
}


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_no_option_goes(verb: Verb) -> None:
    parser = argparse.ArgumentParser()
    load(verb).prepare(parser)
    assert SURFACE[verb.name] <= set(parser._option_string_actions)


@pytest.mark.parametrize(
    "words",
    [["--", "deepspeed", "t.py"], ["--", "horovodrun", "t.py"], ["--", "mpirun", "t.py"]],
)  # fmt: skip
def test_tune_refuses_several_ranks_before_anything_runs(words: list[str], tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert main(["tune", *words]) == 2
    assert "starts several ranks" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_verb_whose_package_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gobrrr.cli.main.VERBS", (Verb("lab", "gobrrr_not_there.verb", "help"),))
    assert main(["lab"]) == 2
    assert "pip install gobrrr-not-there" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["embedding_max_norm", "Embedding-Max-Norm"])
def test_explain_shows_an_idiom_with_its_edit_and_says_its_code(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# embedding_max_norm") and "max_norm=1.0)" in text and "https://" in text
    assert main(["explain", "--json", word]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["code"] for each in told["codes"]] == ["BRR320"] and told["page"].strip() == text.strip()


def test_explain_of_idioms_code_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "320"]) == 0
    assert "| embedding_max_norm |" in capsys.readouterr().out
