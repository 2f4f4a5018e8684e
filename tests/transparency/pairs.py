"""The same program twice: as its user would start it, and watched. What differs between the two is a defect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gobrrr.capture.process import launch
from gobrrr.capture.process.config import Config

PROGRAMS = Path(__file__).parent / "programs"
MILLISECOND = 1_000_000
_CLOCK = re.compile(rb"(?<=USDT:)[-0-9: ]+")
"""Time and process in the log lines of a program's own profiler."""


@dataclass(frozen=True)
class Ran:
    """One run: how it ended, what it printed, what it saw of itself, and where its recording lies."""

    code: int
    out: bytes
    err: bytes
    seen: dict[str, Any]
    folder: Path


def quick(folder: Path, **changes: Any) -> Config:
    """A Config whose windows come after few steps, so that a program of 130 steps meets all of them."""
    return Config(str(folder), **{"plain_ns": 20 * MILLISECOND, "sample_ns": 20 * MILLISECOND, "steps": 14, **changes})


def run(program: str | Path, folder: Path, watched: bool, *args: str, config: Config | None = None) -> Ran:
    """Start `program` with the file of its fingerprint as first argument; `folder` is its working directory."""
    work = folder / "work"
    work.mkdir(parents=True)
    recording = folder / "recording"
    recording.mkdir()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if watched:
        env = {**launch.environment(config or quick(recording)), "OMP_NUM_THREADS": "1"}
    script = PROGRAMS / program if isinstance(program, str) else program
    done = subprocess.run(
        [sys.executable, str(script), "../seen.json", *args], cwd=work, env=env, capture_output=True, timeout=300
    )
    seen = folder / "seen.json"
    text = seen.read_text().replace(str(folder), "FOLDER") if seen.exists() else "{}"
    return Ran(done.returncode, done.stdout, _CLOCK.sub(b"", done.stderr), json.loads(text), recording)


def differences(plain: Any, watched: Any, path: str = "") -> list[str]:
    """Every leaf that differs, by its path."""
    if isinstance(plain, dict) and isinstance(watched, dict):
        keys = sorted({*plain, *watched})
        return [d for key in keys for d in differences(plain.get(key), watched.get(key), f"{path}/{key}")]
    if isinstance(plain, list) and isinstance(watched, list) and len(plain) == len(watched):
        return [
            d for i, (a, b) in enumerate(zip(plain, watched, strict=True)) for d in differences(a, b, f"{path}/{i}")
        ]
    return [] if plain == watched else [f"{path}: {plain!r} became {watched!r}"]
