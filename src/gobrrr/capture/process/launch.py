"""Starts the program as its user would, in a process of its own, and is as good as not there while it runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from gobrrr.capture.process import script
from gobrrr.capture.process.config import VARIABLE, Config
from gobrrr.capture.process.interpreter import kept_out_by
from gobrrr.capture.process.relay import Relay
from gobrrr.errors import GobrrrError

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
        script.check(Path(words[0]))
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
    with Relay() as relay:
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
        _no_core_dump()
    os.kill(os.getpid(), number)
    return 128 + number


def _no_core_dump() -> None:
    """The program has left its own core file; a second one, of gobrrr, would only mislead."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass
