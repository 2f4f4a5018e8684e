"""One program, plain and watched, in the same folder with the same environment: all that a user could compare."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gobrrr.recording.run_folder.run import load_run
from tests.fuzz.hurried import MARK
from tests.support.machine_samples import keep_ceilings

HURRIED = Path(__file__).with_name("hurried.py")
SEEN = Path(__file__).parents[1] / "transparency" / "programs" / "seen.py"
LONGEST = 240  # seconds; what takes longer hangs
WIDEST, LONGEST_SAID = 1200, 60
"""Characters of one line and lines of a difference that are shown."""
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
"""Variables that both runs have; programs print them all."""
STDIN = b"".join(b"line %d\n" % number for number in range(20))
_PASSING = (
    (re.compile(rb"0x[0-9a-f]{6,}"), b"0x"),
    (re.compile(rb"(?<=USDT:)[-0-9: ]+"), b""),  # Kineto's log lines: time and process
    (re.compile(rb"\[W\d+ [0-9:.]+"), b"[W"),  # torch's C++ warnings: time
    (re.compile(rb"(?<=registerClient )\([-0-9 !=]+\)"), b""),  # Kineto's: threads
    (
        re.compile(rb"^(?:bash: line \d+:)? +\d+ .*\n", re.MULTILINE),
        b"",
    ),  # bash tells which process of a pipe was killed
    (re.compile(rb"/pymp-[a-z0-9_]+|/torch_\d+_\d+_\d+|(?<=pid[ =])\d+|(?<=\(pid\(s\) )[\d, ]+"), b""),
)
"""What differs from one plain run to the next: addresses, times, processes."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended and what it left: `code` as subprocess gives it, None for one that hung."""

    code: int | None
    out: bytes
    err: bytes
    files: dict[str, str]

    def text(self) -> str:
        """All of it, as lines."""
        files = "".join(f"{name}: {content}\n" for name, content in self.files.items())
        out, err = (text.decode(errors="backslashreplace") for text in (self.out, self.err))
        return f"exit {self.code}\n----- stdout\n{out}\n----- stderr\n{err}\n----- files\n{files}"


@dataclass(frozen=True)
class Pair:
    """One program's two runs. `windows` are the kinds of gobrrr's windows that opened; `failures` what it says failed
    inside itself."""

    plain: Outcome
    watched: Outcome
    windows: frozenset[str]
    failures: tuple[str, ...]
    report: bytes

    def difference(self) -> str:
        """The lines that differ; empty where nothing does."""
        lines = difflib.unified_diff(
            self.plain.text().splitlines(), self.watched.text().splitlines(), "plain", "watched", lineterm="", n=1
        )
        short = [line if len(line) < WIDEST else f"{line[: WIDEST // 2]} ... {line[-WIDEST // 2 :]}" for line in lines]
        return "\n".join(short[:LONGEST_SAID])


def environment(cache: Path) -> dict[str, str]:
    """The environment of both runs. `cache` gets ceilings for this machine, made up: measuring would take 20 s."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    environ = {**kept, "GOBRRR_CACHE": str(cache), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    if not cache.exists():
        cache.mkdir(parents=True)
        keep_ceilings(cache, environ)
    return environ


class Twice:
    """Runs programs in `folder`: plain ones, and through `gobrrr run`."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self.work, self.recording = folder / "work", folder / "recording"
        self._env = environment(cache or folder / "cache")

    def pair(self, source: str, plain_ms: int = 20) -> Pair:
        """Both runs of a program's text."""
        plain = self.plain(source)
        self._prepare(source)
        shutil.rmtree(self.recording, ignore_errors=True)
        words = [
            sys.executable,
            str(HURRIED),
            str(plain_ms),
            "run",
            "--no-rehearsal",
            "-o",
            str(self.recording),
            "program.py",
        ]
        return self._watched(plain, words)

    def plain(self, source: str) -> Outcome:
        """As its user would start it."""
        self._prepare(source)
        return self._run([sys.executable, "program.py"])

    def _watched(self, plain: Outcome, words: Sequence[str]) -> Pair:
        ran = self._run(words)
        err, _, report = ran.err.partition(MARK)
        windows, failures = self._looked()
        if MARK not in ran.err:
            failures += ("gobrrr itself did not come to its report",)
        return Pair(plain, Outcome(ran.code, ran.out, err, ran.files), windows, failures, report)

    def _prepare(self, source: str) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        (self.work / "program.py").write_text(source)
        shutil.copy2(SEEN, self.work)

    def _run(self, words: Sequence[str]) -> Outcome:
        process = subprocess.Popen(
            words, cwd=self.work, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        try:
            out, err = process.communicate(STDIN, timeout=LONGEST)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            code = None
        return Outcome(code, settled(out), settled(err), self._files())

    def _files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.work)): _content(path)
            for path in sorted(self.work.rglob("*"))
            if "__pycache__" not in path.parts
        }

    def _looked(self) -> tuple[frozenset[str], tuple[str, ...]]:
        if not any(self.recording.glob("rank*.journal")):
            return frozenset(), ()
        recordings = load_run(self.recording)
        missing = {line for found in recordings for line in found.missing if _is_failure(line)}
        windows = frozenset(window.kind for found in recordings for window in found.windows if window.steps)
        return windows, tuple(sorted(missing))


def _is_failure(line: str) -> bool:
    """Whether a recording says that gobrrr failed by itself: what the program's signals raise there is none."""
    return "failed inside gobrrr" in line and not any(name in line for name in ("Late", "KeyboardInterrupt"))


def settled(text: bytes) -> bytes:
    """Without what passes."""
    for pattern, instead in _PASSING:
        text = pattern.sub(instead, text)
    return text


def _content(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return "no file"
    content = path.read_bytes().partition(MARK)[0]  # stderr may go to a file
    return f"{oct(path.stat().st_mode)} {len(content)} bytes {hashlib.sha256(content).hexdigest()[:16]}"
