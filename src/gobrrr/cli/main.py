"""The `gobrrr` command: finds the verb, hands it its arguments, and is the only place that prints an error."""

from __future__ import annotations

import argparse
import errno
import importlib
import itertools
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple, NoReturn

from gobrrr import __version__
from gobrrr.cli import streams
from gobrrr.errors import GobrrrError

INTERRUPTED = 128 + 2  # exit code after Ctrl-C, as shells have it: 128 + the signal's number (SIGINT)
PIPE_CLOSED = 128 + 13  # exit code where the reader of stdout is gone: 128 + the signal's number (SIGPIPE)
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors that a write to stdout meets; the code that writes a named file reports its own."""


class Verb(NamedTuple):
    """A verb's name, its module (from this package on), and its line in `gobrrr --help`.

    The module has `prepare(parser)`, which adds options, and `run(args)`, which does it and returns the exit code, or
    raises GobrrrError for whatever people can mend. What is heavy is imported inside `run`, so that `--help` stays
    quick.
    """

    name: str
    module: str
    help: str
    takes_program: bool = False
    """Everything from the first word that is not its own option on is `args.program`, untouched:
    `["train.py", "--epochs", "1"]`, `["-m", "module", ...]` or `["--", "command", ...]`."""


VERBS = (
    Verb("run", ".verbs.run", "run a program as it is and say what makes it slow", True),
    Verb("tune", ".verbs.tune", "try remedies on the program's own step, keep what is proven to help", True),
    Verb("prove", ".verbs.prove", "race an edit against the program as it is, and judge its numbers", True),
    Verb("sweep", ".verbs.sweep", "which batch size, or other setting, serves best: values measured in turns", True),
    Verb("fit", ".verbs.fit", "does the program fit into a memory, and which batch is the largest that does", True),
    Verb("scale", ".reading.scale", "what a recorded run's step would be on more ranks"),
    Verb("verify", ".verbs.verify", "repeat a receipt's measurement here"),
    Verb("remedies", ".reading.remedies", "the remedies there are, and what each does"),
    Verb("diagnose", ".reading.diagnose", "say what makes a program slow from the traces of torch.profiler"),
    Verb("compare", ".reading.compare", "hold two recordings of one program against each other, op by op"),
    Verb("check", ".verbs.check", "fail where a program has become slower or has findings, for continuous integration",
         True),
    Verb("top", ".verbs.top", "watch a program that runs under gobrrr: step time, trend, memory, doubts"),
    Verb("history", ".reading.history", "the runs of a folder: step, memory, findings, and what changed between them"),
    Verb("attach", ".verbs.attach", "look at a running program from outside, and say what it waits for"),
    Verb("report", ".reading.report", "show the report of an earlier run again"),
    Verb("explain", ".reading.explain", "what a code such as BRR401 means, and how to mend it by hand"),
    Verb("mcp", ".reading.mcp", "the verbs as tools for agents (Model Context Protocol)"),
    Verb("lab", "gobrrr_lab.verb", "measure published figures of efficient deep learning again on this machine"),
    Verb("machine", ".reading.machine", "what this computer can do, measured here"),
    Verb("completion", ".completion", "a script that completes verbs and options in bash, zsh or fish"),
)  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """argparse that raises our error, with a hint, instead of printing its usage and leaving."""

    def error(self, message: str) -> NoReturn:
        raise GobrrrError(message, f"{self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code for the shell; prints errors for people on stderr, in two lines."""
    streams.hold()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # here, where a closed pipe can still be caught
        return code
    except GobrrrError as error:
        from gobrrr.system.escape import plain

        streams.say(f"gobrrr: error: {plain(error.message)}")  # it may hold names out of a file
        if error.hint:
            streams.say(f"  hint: {plain(error.hint)}")
        if wants_document(words):
            from gobrrr.report.forms.json import as_json

            sys.stdout.buffer.write(as_json(error.document()))
            sys.stdout.flush()
        return error.exit_code
    except KeyboardInterrupt as stop:
        return next((code for code in stop.args if isinstance(code, int)), INTERRUPTED)
    except BrokenPipeError:
        # Python flushes stdout once more as it ends: let that go nowhere.
        streams.to_nowhere(sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        streams.to_nowhere(sys.stdout.fileno())
        streams.say(f"gobrrr: error: the output cannot be written: {error.strerror}")
        streams.say("  hint: make room, or name another file")
        return GobrrrError.exit_code


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(_help())
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"gobrrr {__version__}")
        return 0
    verb = next((verb for verb in VERBS if verb.name == argv[0]), None)
    if verb is None:
        raise _unknown(argv[0])
    _check_folder()
    module = load(verb)
    parser = _Parser(prog=f"gobrrr {verb.name}", description=verb.help, allow_abbrev=False)
    module.prepare(parser)
    return int(module.run(_parse(parser, verb.takes_program, argv[1:])))


def wants_document(words: Sequence[str]) -> bool:
    """Whether `--json` stands among the options of a verb, before a program, with no file behind it."""
    own = list(itertools.takewhile(lambda word: word not in ("-m", "--") and not word.endswith(".py"), words))
    file = ".json" if own[:1] in (["run"], ["diagnose"], ["machine"]) else "\0"
    return any(word == "--json" and not after.endswith(file) for word, after in itertools.pairwise([*own, ""]))


def _check_folder() -> None:
    """Raises GobrrrError where the current folder is gone: what is named without a whole path lies nowhere."""
    try:
        os.getcwd()  # noqa: PTH109 - nothing more is imported for it
    except FileNotFoundError:
        raise GobrrrError("the current folder is gone", "change into a folder that exists: cd FOLDER") from None


def load(verb: Verb) -> ModuleType:
    """Import the verb's module; raise GobrrrError where a distribution of its own has it."""
    try:
        return importlib.import_module(verb.module, __package__)
    except ModuleNotFoundError as error:
        package = verb.module.partition(".")[0]
        if error.name != package:
            raise
        why = f"gobrrr {verb.name} is a package of its own, which is not installed"
        raise GobrrrError(why, f"pip install {package.replace('_', '-')}") from None


def _parse(parser: argparse.ArgumentParser, takes_program: bool, words: list[str]) -> argparse.Namespace:
    try:
        if not takes_program:
            return parser.parse_args(_with_numbers(parser, words))
        own, program = split_program(parser, words)
        args = parser.parse_args(own)
        args.program = program
        return args
    except SystemExit as leaving:  # only --help gets here: _Parser raises for errors
        sys.stdout.flush()
        raise leaving


def _with_numbers(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """An option whose number may be left out takes the next word only where that is one: else a file follows it."""
    found: list[str] = []
    for word in words:
        action = parser._option_string_actions.get(found[-1]) if found else None
        if action is not None and action.nargs == "?" and isinstance(action.const, int):
            found[-1] += f"={word}" if word.isdecimal() else "="
            if word.isdecimal():
                continue
        found.append(word)
    return found


def split_program(parser: argparse.ArgumentParser, words: list[str]) -> tuple[list[str], list[str]]:
    """Split words into the options of `parser`, which come first, and the program with its arguments, untouched.

    The program starts at the first word that is neither an option nor an option's value, at `-m`, or at `--`.
    argparse.REMAINDER does not do it: it takes the options of a module after `-m` for its own.
    """
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "--", "-"):
        at += 2 if _wants_value(parser, *words[at : at + 2]) else 1
    return words[:at], words[at:]


def _wants_value(parser: argparse.ArgumentParser, word: str, after: str = "") -> bool:
    action = parser._option_string_actions.get(word)  # not there for --option=value and -oVALUE: they hold theirs
    if action is not None and action.nargs == "?":  # of --json: a program is no .json
        return action.dest == "json" and after.endswith(".json")
    return action is not None and action.nargs != 0


def _unknown(word: str) -> GobrrrError:
    import difflib

    near = difflib.get_close_matches(word, [verb.name for verb in VERBS], n=1)
    hint = f"did you mean gobrrr {near[0]}?" if near else "gobrrr --help lists the verbs"
    if word == "-m" or (word.endswith(".py") and os.path.isfile(word)):  # noqa: PTH113 - nothing more is imported
        hint = f"gobrrr run {word}"
    elif word.endswith(".py"):
        hint = "a script is started by gobrrr run, and there is none of this name here"
    return GobrrrError(f"there is no verb '{word}'", hint)


def _help() -> str:
    verbs = "\n".join(f"  {verb.name:<12}{verb.help}" for verb in VERBS)
    return f"""usage: gobrrr VERB [options] ...

gobrrr finds out why a PyTorch program is slow, what makes it faster, and whether it is still right.

{verbs}

  gobrrr run train.py --epochs 1    instead of  python train.py --epochs 1
  gobrrr tune train.py --epochs 1   what makes it faster, proven on its own step
  gobrrr VERB --help                the options of a verb
  gobrrr --version"""


if __name__ == "__main__":
    sys.exit(main())
