"""Starts the program as its user would, in a process of its own, and is as good as not there while it runs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import stat
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from gobrrr.capture.process.config import VARIABLE, Config
from gobrrr.capture.process.relay import Relay
from gobrrr.errors import GobrrrError
from gobrrr.system.commands import PYTHON, python_options

_INJECT = Path(__file__).parent / "inject"  # folder with our sitecustomize, put on PYTHONPATH


def command_line(words: Sequence[str], *, module: bool, command: bool) -> list[str]:
    """The plain command: `script args` (`-`: from stdin), `-m module args`, or any command that starts Python.

    Raises GobrrrError for a script that is not there or is not Python.
    """
    if not words:
        raise GobrrrError("no program to run", "give script.py [args], -m module [args], or -- command")
    if module:
        return [sys.executable, "-m", *words]
    if command:
        if shutil.which(words[0]) is None:
            raise GobrrrError(f"no such command: {words[0]}", "what follows -- must start a program", 127)
        return list(words)
    if words[0] != "-":
        check_script(Path(words[0]))
    return [sys.executable, *words]


def environment(config: Config, command: Sequence[str] = ()) -> dict[str, str]:
    """The environment of the watched process: its own, plus a sitecustomize that takes itself out again.

    Nothing is added for a command whose Python would neither see it nor take it out. Raises GobrrrError where a gobrrr
    watches this process already.
    """
    env = dict(os.environ)
    if VARIABLE in env:
        raise GobrrrError("a gobrrr is watching this process already", "run the program without the inner gobrrr")
    if command and kept_out_by(command):
        return env
    config.pythonpath = env.get("PYTHONPATH")
    env["PYTHONPATH"] = os.pathsep.join([str(_INJECT), *([config.pythonpath] if config.pythonpath else [])])
    env[VARIABLE] = config.to_env()
    return env


def run(command: Sequence[str], config: Config, variables: Mapping[str, str] = MappingProxyType({})) -> int:
    """Run to the end, with further variables set; returns what subprocess returns (negative: the signal that ended it).

    The program has our standard streams, working directory and inherited descriptors, gets the signals that we are
    sent, and dies with us. Raises GobrrrError where it cannot be started.
    """
    env = environment(config, command) | dict(variables)
    with Relay(config.on_signal) as relay:
        try:
            relay.start(command, env)
        except OSError as error:
            raise GobrrrError(f"cannot start {command[0]}: {error.strerror}", "", 126) from None
        return relay.wait()


def leave_as(code: int) -> int:
    """The exit code of a program that ended with `code`; of one that a signal killed, die of the same signal."""
    if code >= 0:
        return code
    number = -code
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "SIGABRT"):
        # The program has left its own core file; a second one, of gobrrr, would only mislead.
        with contextlib.suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)
    return 128 + number


def check_script(script: Path) -> None:
    """Raises GobrrrError for a script that is not there or is not Python; a pipe's content is left to the program."""
    try:
        mode = script.stat().st_mode
    except OSError as error:
        if script.exists():
            raise _unreadable(script, error) from None
        raise GobrrrError(
            f"no such script: {script}", "for a module say -m, for another command put -- before it"
        ) from None
    if stat.S_ISDIR(mode) and not any(script.glob("__main__.*")):
        raise GobrrrError(f"{script} is a folder without __main__.py", "name the script in it")
    if stat.S_ISREG(mode):
        try:
            _check_file(script)
        except OSError as error:
            raise _unreadable(script, error) from None


def _check_file(script: Path) -> None:
    """Check a script as Python looks at it: an archive by its end, bytecode by its name or its first two bytes, else
    source."""
    source = script.read_bytes()
    if script.suffix == ".pyc" or source[:2] == importlib.util.MAGIC_NUMBER[:2] or zipfile.is_zipfile(script):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the program's own run tells of them
            compile(source, str(script), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise GobrrrError(
            f"{script} is not Python{f' (line {line})' if line else ''}: {getattr(error, 'msg', error)}",
            "for another command put -- before it",
        ) from None
    except (RecursionError, MemoryError):
        return  # it may still run, or say so itself


def _unreadable(script: Path, error: OSError) -> GobrrrError:
    return GobrrrError(f"cannot read {script}: {error.strerror}", "check its permissions")


_KEEP_OUT = "IES"
"""Isolated, without environment, without site: our sitecustomize is not found or not run."""


def kept_out_by(command: Sequence[str]) -> str:
    """The option with which this command's Python will not read our sitecustomize ("-I"); "" where there is none.

    Seen are Python itself, also behind another command (env, nice, numactl), and the first line of a script. What a
    shell script starts cannot be known.
    """
    return next((f"-{letter}" for letter, _ in _options(command) if letter and letter in _KEEP_OUT), "")


def run_by_python(command: Sequence[str]) -> str:
    """The module or the script that this command's Python runs, as it is named there; "" where there is neither."""
    *_, (letter, value) = [("c", ""), *_options(command)]
    return value if letter in ("m", "") else ""


def _options(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options of this command's Python, which may stand in the first line of a script, and what it runs."""
    words = [*_first_line(command[0]), *command]
    at = next((i for i, word in enumerate(words) if _is_python(word)), len(words))
    return python_options(words[at + 1 :])


def _is_python(word: str) -> bool:
    found = shutil.which(word)
    return found is not None and any(PYTHON.fullmatch(Path(p).name) for p in (found, os.path.realpath(found)))


def _first_line(command: str) -> list[str]:
    """The interpreter that a script names, as words."""
    try:
        with open(shutil.which(command) or command, "rb") as file:  # noqa: PTH123
            line = file.readline(4096)
    except OSError:
        return []
    return line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
