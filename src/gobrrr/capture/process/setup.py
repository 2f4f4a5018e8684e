"""Notes what a run is started with; git looks while the program starts, and is never waited for by it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gobrrr.machine.probe.fingerprint import THREAD_COUNTS, is_switch
from gobrrr.recording.model.setup import Setup
from gobrrr.system import files
from gobrrr.system.commands import program_of
from gobrrr.system.secrets import masked

MOST_BYTES = 4 << 20
"""Bytes of a script up to which it is read."""
PATIENCE_S = 0.1
"""How long git is waited for when the program has ended, before it is stopped."""
_FAMILIES = ("CUBLAS_", "CUDNN_", "GLOO_", "NCCL_", "PYTORCH_", "TORCH", "TRITON_")
_ASK = ("--no-optional-locks", "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch",
        "--no-ahead-behind", "--untracked-files=no", "--ignore-submodules=dirty")  # fmt: skip
"""Reads only: no index is refreshed. Filters that git's own configuration names are started, as by any git status."""
_OF_A_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
                    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX")  # fmt: skip
"""Variables that a hook of another repository leaves."""


def noting(command: Sequence[str], variables: Mapping[str, str], remedies: Sequence[str] = ()) -> Callable[[], Setup]:
    """Begin to note it, just before the command starts with these further variables; call the result for the setup
    when it has ended."""
    began, program = time.time_ns(), program_of(command)
    script = program if program.endswith(".py") else ""
    git = _asked(Path(script).parent)
    kept = masked([f"{name}={value}" for name, value in (os.environ | dict(variables)).items() if _matters(name)])
    known = {name: value for name, _, value in (word.partition("=") for word in sorted(kept))}
    digest = ""
    with contextlib.suppress(OSError):  # of a module: the folder is no file
        digest = hashlib.sha256(files.read(Path(script), MOST_BYTES)).hexdigest()[:16]

    def setup() -> Setup:
        commit, branch, edited = _answer(git) if git else ("", "", None)
        return Setup(began, commit, branch, edited, digest, known, tuple(remedies))

    return setup


def _matters(name: str) -> bool:
    return name in THREAD_COUNTS or is_switch(name) or name.startswith(_FAMILIES)


def _asked(folder: Path) -> subprocess.Popen[bytes] | None:
    """The git that looks into the folder; None where there is none."""
    env = {name: value for name, value in os.environ.items() if name not in _OF_A_REPOSITORY}
    env["GIT_NO_LAZY_FETCH"] = "1"  # a partial clone is not completed over the network
    try:
        return subprocess.Popen(["git", "-C", str(folder), *_ASK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, env=env, start_new_session=True)  # fmt: skip
    except (OSError, ValueError):
        return None


def _answer(git: subprocess.Popen[bytes]) -> tuple[str, str, bool | None]:
    """Commit, branch, and whether tracked files differ."""
    try:
        said = git.communicate(timeout=PATIENCE_S)[0]
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(git.pid, signal.SIGKILL)  # and what it has started
        git.wait()
        return "", "", None
    lines = said.decode("utf-8", "replace").splitlines() if not git.returncode else []
    told = {words[1]: words[2] for line in lines if len(words := line.split(" ", 2)) == 3 and words[0] == "#"}
    commit, branch = told.get("branch.oid", ""), told.get("branch.head", "")
    edited = any(not line.startswith("#") for line in lines) if told else None
    return commit if commit != "(initial)" else "", branch if branch != "(detached)" else "", edited
