"""Experiments one after the other, each in a process of its own, each receipt kept as soon as it is there."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.machine.model.machine import Machine
from gobrrr.system import files
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.needs import lacking
from gobrrr_lab.measure.result import Result, cpu_of
from gobrrr_lab.measure.verdict import CANNOT, INCONCLUSIVE

KEPT = Path(".gobrrr") / "lab"  # folder of the results
MOST_BYTES = 1 << 20
"""Bytes read of a file of results; proposed: far more than they have; a file refused would settle it."""
LAST_WORDS_S = 5.0
"""Seconds to clear away after SIGTERM; proposed: files and processes go faster; leftovers would settle it."""
LATE_S = 60.0
"""Beside thrice its time: what an experiment may take before it is ended. Compiling takes most of that."""


def run(
    experiments: Mapping[str, Experiment], machine: Machine, seconds: float | None = None, tiny: bool = False,
    folder: Path = KEPT, within: float = math.inf,
) -> Iterator[Result]:  # fmt: skip
    """The result of each as it comes, then kept in `folder`; `seconds` for each instead of its own. What this machine
    lacks is told and not kept. After `within` seconds none is begun."""
    until = time.monotonic() + within
    with tempfile.TemporaryDirectory(prefix="gobrrr-lab-") as scratch:
        ceilings = Path(scratch) / "machine.json"
        ceilings.write_bytes(msgspec.json.encode(machine))
        for name, experiment in experiments.items():
            if missing := lacking(experiment):
                told = Result(name, experiment.number, CANNOT, missing, published=experiment.published)
                yield msgspec.structs.replace(told, cpu=cpu_of(machine), cores=machine.usable_cores)
                continue
            if time.monotonic() >= until:
                return
            result = _one(name, experiment, seconds or experiment.seconds, tiny, ceilings)
            yield result  # told before it is kept: a folder without room loses no measurement
            if not tiny:
                keep(result, folder)


def keep(result: Result, folder: Path = KEPT) -> None:
    """In a file named after the experiment. Raises GobrrrError where there is no room."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files.write(folder / f"{result.name}.json", msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    except OSError as error:
        raise GobrrrError(f"{folder}: {error.strerror}", "run it in a folder where you may write") from None


def kept(folder: Path = KEPT) -> list[Result]:
    """The receipts in a folder and in those below it, or in a file, by number; what is no receipt is left out."""
    found = []
    for path in sorted(folder.rglob("*.json")) if folder.is_dir() else [folder]:
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found += read(path)
    return sorted(found, key=lambda result: (result.number, result.cpu))


def read(path: Path) -> list[Result]:
    """One receipt, or a list of them as `-o FILE.json` writes it. Raises OSError, MsgspecError, UnicodeDecodeError or
    RecursionError."""
    found = msgspec.json.decode(files.read(path, MOST_BYTES), type=Result | list[Result])
    results = found if isinstance(found, list) else [found]
    return [one for one in results if _is_whole(one)]


def _is_whole(result: Result) -> bool:
    figure = result.found.factor if result.found else None
    return figure is None or all(map(math.isfinite, (figure.value, figure.low, figure.high)))


def _one(name: str, experiment: Experiment, seconds: float, tiny: bool, machine: Path) -> Result:
    result = machine.with_name(f"{name}.result")
    command = [
        sys.executable,
        "-m",
        "gobrrr_lab.measure.stage",
        name,
        str(seconds),
        "1" if tiny else "0",
        str(machine),
        str(result),
    ]
    said = ""
    child = subprocess.Popen(  # in our own folder: -m looks for modules in the current one first
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", cwd=machine.parent
    )
    try:
        _, told = child.communicate(timeout=3 * seconds + LATE_S)
        said = (told.strip().splitlines() or [f"it ended with exit code {child.returncode}"])[-1]
        return msgspec.json.decode(result.read_bytes(), type=Result)
    except subprocess.TimeoutExpired:
        said = f"it did not end within {3 * seconds + LATE_S:.0f} s"
    except FileNotFoundError:
        pass
    finally:
        _end(child)
    return Result(name, experiment.number, INCONCLUSIVE, said, published=experiment.published)


def _end(child: subprocess.Popen[str]) -> None:
    """With the time to clear away what it has made; whatever it has started goes with it."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=LAST_WORDS_S)
    child.kill()
    child.wait()
