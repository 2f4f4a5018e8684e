"""py-spy beside a running process: started, ended in time, and its errors in one line."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from gobrrr.errors import GobrrrError
from gobrrr.system import files, process_tree
from gobrrr.system.processes import die_with_the_parent

SLACK_S = 5
"""Seconds that it may need to end and to write, and after which it ends by itself where nobody ends it."""
MOST_SAID = 1 << 16
"""Bytes of its errors that are read."""
PYTHON = "name a process of python that runs: pgrep -af python"
REASONS = (
    ("Permission Denied", "may not be read by this user",
     "put sudo before the command; in a container, grant CAP_SYS_PTRACE (--cap-add SYS_PTRACE)"),
    ("Operation not permitted", "may not be read by this user",
     "put sudo before the command, or let this user trace: sysctl kernel.yama.ptrace_scope=0"),
    ("process executable name", "has ended", PYTHON),
    ("find python version", "is no Python process", PYTHON),
)  # fmt: skip
"""By words of py-spy's error: what is wrong with the process, and what to do."""


def find() -> str:
    """Return py-spy's path: beside this Python, or on PATH. Raises GobrrrError where there is none."""
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        raise GobrrrError("gobrrr attach needs py-spy, which is not installed", "pip install 'gobrrr[attach]'")
    return found


class Spy:
    """Samples all threads of one process, which runs on meanwhile, until it is ended."""

    def __init__(self, program: str, pid: int, folder: Path, seconds: float, rate: int) -> None:
        self.pid, self.file, self._said = pid, folder / f"{pid}.json", folder / f"{pid}.err"
        words = [
            program, "record", "--pid", str(pid), "--format", "speedscope", "--output", str(self.file), "--rate",
            str(rate), "--duration", str(int(seconds) + SLACK_S), "--idle", "--threads", "--full-filenames",
            "--nonblocking",
        ]  # fmt: skip
        with self._said.open("wb") as said:  # a session of its own: Ctrl-C is for us, who then end it
            self._child = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True,
                preexec_fn=partial(die_with_the_parent, os.getpid()),
            )  # fmt: skip

    def over(self) -> bool:
        """Say whether it has ended: its process has, or it could not begin."""
        return self._child.poll() is not None

    def end(self) -> None:
        """Have it write what it has, as at Ctrl-C."""
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGINT)

    def wrote(self, patience_s: float) -> bool:
        """Say whether it has written and ended in time."""
        try:
            return self._child.wait(max(0.1, patience_s)) == 0 and self.file.is_file()
        except subprocess.TimeoutExpired:
            return False

    def kill(self) -> None:
        """End it now, where it has not ended."""
        self._child.kill()
        self._child.wait()

    def error(self) -> GobrrrError:
        """Return why it saw nothing."""
        said = files.read(self._said, MOST_SAID).decode("utf-8", "replace")
        for words, why, hint in REASONS:
            if words in said:
                return GobrrrError(f"pid {self.pid} {why}", hint)
        if process_tree.is_over(self.pid):
            return GobrrrError(f"pid {self.pid} ended before anything was seen", "gobrrr run sees it from its start")
        first = next((line for line in said.splitlines() if line.startswith("Error")), "it did not answer in time")
        return GobrrrError(f"py-spy saw nothing of pid {self.pid}: {first.removeprefix('Error: ')}", "try again")
