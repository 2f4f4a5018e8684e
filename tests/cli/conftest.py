"""gobrrr as a person would start it, and the program as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """What it said on stderr."""
        return self.err.decode()


@pytest.fixture(scope="session")
def env() -> dict[str, str]:
    """The environment of all commands here."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


@pytest.fixture(scope="session")
def printed(tmp_path_factory: pytest.TempPathFactory, env: dict[str, str]) -> Done:
    """What a plain run of ends.py prints that ends normally."""
    return run([sys.executable, str(PROGRAMS / "ends.py"), "normally"], env, tmp_path_factory.mktemp("plain"))


@dataclass(frozen=True)
class Runner:
    """Runs `command` with more words after it, in a folder of the test's own."""

    command: list[str]
    env: dict[str, str]
    folder: Path

    def __call__(self, *words: object, **how: Any) -> Done:
        if words[:1] == ("run",) and "-m" in self.command:  # what a rehearsal says is proven elsewhere; it takes 10 s
            words = ("run", "--no-rehearsal", *words[1:])
        return run([*self.command, *map(str, words)], self.env, self.folder, **how)


@pytest.fixture
def plainly(env: dict[str, str], tmp_path: Path) -> Runner:
    """`plainly("script.py", "arg")`: the program as it is."""
    return Runner([sys.executable], env, tmp_path)


@pytest.fixture
def gobrrr(env: dict[str, str], tmp_path: Path) -> Runner:
    """`gobrrr("run", "script.py", "arg")`, in the same folder."""
    return Runner([sys.executable, "-m", "gobrrr"], env, tmp_path)


def run(command: list[str], env: dict[str, str], cwd: Path, **how: Any) -> Done:
    """Run to the end; `environ` adds to the environment, `cwd` is another folder."""
    environ = {**env, **how.pop("environ", {})}
    done = subprocess.run(command, env=environ, cwd=how.pop("cwd", cwd), capture_output=True, timeout=120, **how)
    return Done(done.returncode, done.stdout, done.stderr)


def own_part(plain: Done, watched: Done) -> str:
    """What gobrrr has said after a program that has said on stderr what it says plainly."""
    assert watched.err.startswith(plain.err), f"{plain.text}\n----- became -----\n{watched.text}"
    return " ".join(watched.err[len(plain.err) :].decode().split())  # lines are broken to fit the terminal
