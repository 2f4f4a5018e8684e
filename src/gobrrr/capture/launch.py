"""Starts the program as its user would, in a process of its own, and is as good as not there while it runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gobrrr.capture.config import VARIABLE, Config
from gobrrr.errors import GobrrrError

_INJECT = Path(__file__).parent / "inject"
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH")
_KEYS = ("SIGINT", "SIGQUIT")
"""Ctrl-C and Ctrl-\\ go to all that a terminal runs in its foreground; kill sends them to one."""


def command_line(words: Sequence[str], *, module: bool, command: bool) -> list[str]:
    """The plain command: `script args`, `-m module args`, or any command that starts Python.

    Raises GobrrrError for a script that is not there or is not Python.
    """
    if not words:
        raise GobrrrError("no program to run", "say gobrrr run script.py [args], -m module [args], or -- command")
    if module:
        return [sys.executable, "-m", *words]
    if command:
        if shutil.which(words[0]) is None:
            raise GobrrrError(f"no such command: {words[0]}", "what follows -- must start a program", 127)
        return list(words)
    _check_script(Path(words[0]))
    return [sys.executable, *words]


def _check_script(script: Path) -> None:
    if not script.exists():
        raise GobrrrError(f"no such script: {script}", "for a module say -m, for another command put -- before it")
    if script.is_dir():
        if not (script / "__main__.py").exists():
            raise GobrrrError(f"{script} is a folder without __main__.py", "name the script in it")
        return
    try:
        source = script.read_bytes()
        if source[:4] == b"PK\x03\x04":
            return  # a zip application
        compile(source, str(script), "exec", dont_inherit=True)
    except OSError as error:
        raise GobrrrError(f"cannot read {script}: {error.strerror}", "check its permissions") from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise GobrrrError(
            f"{script} is not Python{f' (line {line})' if line else ''}: {getattr(error, 'msg', error)}",
            "for another command put -- before it",
        ) from None


def environment(config: Config) -> dict[str, str]:
    """The environment of the watched process: its own, plus a sitecustomize that takes itself out again."""
    env = dict(os.environ)
    if VARIABLE in env:
        raise GobrrrError("a gobrrr is watching this process already", "run the program without the inner gobrrr")
    config.pythonpath = env.get("PYTHONPATH")
    env["PYTHONPATH"] = os.pathsep.join([str(_INJECT), *([config.pythonpath] if config.pythonpath else [])])
    env[VARIABLE] = config.to_env()
    return env


def run(command: Sequence[str], config: Config, variables: Mapping[str, str] = MappingProxyType({})) -> int:
    """Run to the end, with further variables set; returns what subprocess returns (negative: the signal that ended it).

    Signals sent to gobrrr are passed on, those that a terminal sends to both are not.
    """
    env = environment(config) | dict(variables)
    with _Relay() as relay:
        try:
            relay.child = subprocess.Popen(list(command), env=env)
        except OSError as error:
            raise GobrrrError(f"cannot start {command[0]}: {error.strerror}", "", 126) from None
        return relay.wait()


class _Relay:
    """Passes signals on to the child from its first moment to its last; what is ignored here stays ignored there."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._old: dict[int, Any] = {}

    def __enter__(self) -> _Relay:
        for name in (*_FORWARDED, *_KEYS):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def wait(self) -> int:
        """Until the child ends; signals that came before it was there go first."""
        assert self.child is not None
        for number in self._early:
            self.child.send_signal(number)
        return self.child.wait()

    def _received(self, number: int, _frame: object) -> None:
        if signal.Signals(number).name in _KEYS and _at_a_terminal():
            return
        if self.child is None:
            self._early.append(number)
        else:
            self.child.send_signal(number)


def _at_a_terminal() -> bool:
    """Whether we are what a terminal runs in its foreground: then its keys reach the program without us."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def leave_as(code: int) -> int:
    """The exit code of a program that ended with `code`; of one that a signal killed, die of the same signal."""
    if code >= 0:
        return code
    number = -code
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
