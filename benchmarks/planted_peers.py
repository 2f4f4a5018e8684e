"""TraceML on the programs that gobrrr is asked about: installed on demand beside our environment, asked once each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.planted_truth import PATIENCE, environment, step_arguments
from tests.planted.catalogue import Illness

ENVIRONMENT = Path(".bench-venv")
STEPS = Path(__file__).with_name("traceml_steps.py")
# Its verdicts name phases. The phase that holds each band's cost, read generously.
RIGHT_PHASE = {
    "1": ("COMPUTE",),
    "2": ("COMPUTE",),
    "3": ("RESIDUAL", "COMPUTE", "HIGH_CPU"),
    "4": ("INPUT",),
    "6": ("CREEP", "MEMORY"),
    "8": ("COMPUTE",),
}


@dataclass(frozen=True)
class Verdict:
    """What the peer said: its own code and sentence, and whether it names the phase that is to blame."""

    kind: str
    sentence: str
    right_phase: bool = False


class TraceML:
    """TraceML in its own environment, which borrows torch from ours."""

    def __init__(self, command: Path, version: str) -> None:
        self.command, self.version = command, version

    @classmethod
    def install(cls) -> TraceML | str:
        """Ready to run, or the reason why not."""
        python = ENVIRONMENT / "bin" / "python"
        try:
            if not python.exists():
                subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True, capture_output=True)
                ours = sysconfig.get_paths()["purelib"]
                theirs = _output([str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"])
                (Path(theirs) / "torch_from_here.pth").write_text(ours + "\n")
            subprocess.run([str(python), "-m", "pip", "install", "-q", "traceml-ai"], check=True, capture_output=True)
            version = _output([str(python), "-c", "import traceml_ai; print(traceml_ai.__version__)"])
        except (OSError, subprocess.CalledProcessError) as error:
            return f"TraceML could not be installed: {error}"
        return cls(ENVIRONMENT / "bin" / "traceml", version)

    def ask(self, illness: Illness, num_steps: int | None = None, *, unmodified: bool = False) -> Verdict:
        """Its verdict on the sick program; `unmodified`: without the step boundaries that it wants in the code."""
        script = str(illness.script("sick"))
        program = [script, "--args"] if unmodified else [str(STEPS), "--args", illness.kind, script]
        said = self.summary([*program, *step_arguments(num_steps)])
        right = RIGHT_PHASE.get(illness.code[3], ())
        return Verdict("none", said) if isinstance(said, str) else read_summary(said, right)

    def summary(
        self, program: list[str], folder: Path | None = None, variables: dict[str, str] | None = None
    ) -> dict[str, object] | str:
        """What it writes of this script with its arguments, or why it wrote nothing; nothing of it lives on."""
        with tempfile.TemporaryDirectory() as scratch:
            place = ["--logs-dir", scratch, "--run-name", "run", "--interval", "1"]
            command = [str(self.command.resolve()), "run", *place, *program]
            process = subprocess.Popen(
                command, cwd=folder, env=variables or environment(), start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return f"no end within {PATIENCE:.0f} s"
            file = Path(scratch) / "run" / "final_summary.json"
            if code or not file.exists():
                return f"the program or the peer failed: it left with {code}"
            said: dict[str, object] = json.loads(file.read_text())
            return said


def read_summary(said: dict[str, object], right: tuple[str, ...]) -> Verdict:
    """The primary diagnosis of a TraceML summary, held against words of which one is in the right one."""
    primary = said.get("primary_diagnosis")
    if not isinstance(primary, dict):
        return Verdict("none", "no diagnosis in its summary")
    kind = str(primary.get("kind", "none"))
    return Verdict(kind, str(primary.get("summary", "")), any(word in kind for word in right))


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
