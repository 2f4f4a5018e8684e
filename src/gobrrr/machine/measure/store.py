"""The machine's ceilings, from the user's cache folder or measured now: torch stays in another process."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gobrrr.errors import GobrrrError, TorchMissing
from gobrrr.machine.measure import command
from gobrrr.machine.model.bounds import bounded
from gobrrr.machine.model.figures import doubtful, merged
from gobrrr.machine.model.machine import SCHEMA, Machine, Measured
from gobrrr.machine.probe.fingerprint import THREAD_COUNTS, fingerprint
from gobrrr.machine.probe.system_probe import probe
from gobrrr.system import quiet
from gobrrr.system.files import cache_folder, read_own, write_own

Notify = Callable[[str], object]

REPEAT_SECONDS, MOST_REPEATS = 4.0, 5
"""How long doubtful figures are measured again at a quiet moment, and how often: what varies then varies by itself."""
MAX_BYTES = 1 << 20
"""A Machine takes 10 KiB; a file a hundred times as large is not one of ours."""
_TIMEOUT = 180.0
"""Seconds: 20 for the measuring, the rest for importing torch from a cold network disk."""
# Programs for `python -c`: one prints torch's version, one measures. They begin by ending the search path with gobrrr's
# folder, so that the other interpreter's own packages come first, and by taking the current folder off it, so that a
# random.py lying there is not imported.
_START = "import sys; sys.path[:] = [p for p in sys.path if p] + [sys.argv.pop(1)]; "
_VERSION = _START + "from gobrrr.machine.measure.command import torch_version; print(torch_version() or '')"
_MEASURE = _START + "from gobrrr.machine.measure.command import main; sys.exit(main())"


def load_or_measure(
    refresh: bool = False, notify: Notify = lambda text: None, interpreter: str | None = None,
    folder: Path | None = None,
) -> Machine:  # fmt: skip
    """This machine's ceilings for the torch of `interpreter` (default: this one).

    Taken from the cache where hardware, clocks, quota and torch build are those that were measured, else measured (at
    most 20 s) and kept; `refresh` measures anyway. `notify` gets lines about what goes on. A cache that is corrupt, of
    an older schema or not writable costs a note and never more. Raises TorchMissing without a usable torch.
    """
    interpreter = interpreter or sys.executable
    version = torch_version(interpreter)
    path = _file(version, folder)
    if not refresh:
        found = _read(path, notify)
        if found is not None:
            return bounded(_settled(found, interpreter, path, notify))
    notify("measuring what this machine can do (at most 20 s, then kept) ...")
    # the other process may see another environment: what is asked for is what the file must be found by
    mark = path.stem.removeprefix("machine-")
    machine = msgspec.structs.replace(measure_in(interpreter), fingerprint=mark)
    _write(path, machine, notify)
    return bounded(machine)


def _settled(machine: Machine, interpreter: str, path: Path, notify: Notify) -> Machine:
    """The kept machine; at a quiet moment with its doubtful figures measured again, a few seconds and a few times."""
    keys = doubtful(machine)
    if not keys or machine.repeats >= MOST_REPEATS:
        return machine
    busy = quiet.busy_cores()
    if busy is None or busy > quiet.QUIET:
        return machine
    notify(f"it is quiet now: measuring {len(keys)} doubtful ceilings again (at most {REPEAT_SECONDS:.0f} s) ...")
    try:
        fresh = measure_in(interpreter, REPEAT_SECONDS, keys)
    except GobrrrError:
        return machine  # what is kept is still the best that is known
    settled = merged(machine, fresh)
    _write(path, settled, notify)
    return settled


def kept(version: str, folder: Path | None = None) -> Machine | None:
    """This machine's ceilings for a version of torch, where they were measured before; starts nothing."""
    found = _read(_file(version, folder), lambda text: None)
    return bounded(found) if found is not None else None


def _file(version: str, folder: Path | None) -> Path:
    return (folder or cache_folder()) / f"machine-{fingerprint(probe(), version)}.json"


def torch_version(interpreter: str) -> str:
    """The version of an interpreter's torch, without importing it. Raises TorchMissing if absent or too old."""
    if interpreter == sys.executable:
        version = command.torch_version()
    else:
        done = _start(interpreter, _VERSION)
        if done.returncode:
            raise GobrrrError(f"{interpreter} does not run: {_last(done.stderr)}", "name a Python from 3.10 on")
        version = done.stdout.strip() or None
    if version is None or command.is_too_old(version):
        raise _missing(interpreter, version)
    return version


def measure_in(interpreter: str, seconds: float | None = None, only: Sequence[str] = ()) -> Machine:
    """Measure in a process of `interpreter`, which needs torch and nothing else, and check what comes back.

    `only`: keys of the figures wanted, within `seconds`.
    """
    done = _start(interpreter, _MEASURE, *([str(seconds), ",".join(only)] if seconds else []))
    if done.returncode == command.TORCH_MISSING:
        raise _missing(interpreter, None)
    if done.returncode:
        raise GobrrrError(
            f"measuring the machine failed: {_last(done.stderr)}",
            f'try: {interpreter} -c "import torch; print(torch.ones(2) + 1)"',
        )
    try:
        return decode(done.stdout.strip().rpartition("\n")[2].encode())
    except msgspec.MsgspecError as error:
        raise GobrrrError(
            f"measuring the machine gave nothing that can be read: {error}", "try again: gobrrr machine"
        ) from error


def decode(data: bytes) -> Machine:
    """A Machine from its JSON. Raises msgspec.ValidationError where it is not one of this schema with sane figures."""
    machine = msgspec.json.decode(data, type=Machine)
    if machine.schema != SCHEMA:
        raise msgspec.ValidationError(f"schema {machine.schema!r} instead of {SCHEMA!r}")
    if not all(0 <= each.low <= each.median <= each.high < math.inf for each in _figures(machine)):
        raise msgspec.ValidationError("a figure that is negative, infinite or out of order")
    return machine


def _figures(machine: Machine) -> list[Measured]:
    device = machine.device
    return [
        *(machine.effective_cores, machine.dispatch, machine.fresh_page),
        *(figure for row in machine.matmul.values() for figure in row.values()),
        *(copy.rate for copy in machine.copy),
        *((device.copy, device.launch, device.pinned, device.pageable, *device.matmul.values()) if device else ()),
    ]


def _start(interpreter: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code with gobrrr importable and torch's thread counts at their defaults."""
    environ = {name: value for name, value in os.environ.items() if name not in THREAD_COUNTS}
    root = str(Path(__file__).resolve().parents[3])
    try:
        return subprocess.run(
            [interpreter, "-c", code, root, *arguments], capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, env=environ, timeout=_TIMEOUT, check=False,
        )  # fmt: skip
    except OSError as error:
        reason = error.strerror or str(error)
        raise GobrrrError(f"{interpreter} does not start: {reason}", "name the Python that runs your program") from None
    except subprocess.TimeoutExpired:
        raise GobrrrError(
            f"{interpreter} took more than {_TIMEOUT:.0f} s to measure the machine", "try again when it is idle"
        ) from None


def _missing(interpreter: str, version: str | None) -> TorchMissing:
    said = f"torch {version} is too old for gobrrr" if version else f"torch is not installed in {interpreter}"
    least = ".".join(map(str, command.OLDEST))
    return TorchMissing(said, f'{interpreter} -m pip install "torch>={least}"')


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def _read(path: Path, notify: Notify) -> Machine | None:
    """The kept Machine; None where there is none, or none that can be believed."""
    try:
        data = read_own(path, MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        notify(f"note: {path} cannot be read ({error.strerror}); measuring again")
        return None
    try:
        machine = decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        notify(f"note: {path} is damaged or of another version of gobrrr; measuring again")
        return None
    return machine if f"machine-{machine.fingerprint}.json" == path.name else None


def _write(path: Path, machine: Machine, notify: Notify) -> None:
    """Replace the kept Machine in one step; a folder that cannot be written, or is not safe, is worth a note."""
    try:
        write_own(path, msgspec.json.encode(machine))
    except OSError as error:
        notify(f"note: the measurement cannot be kept in {path.parent} ({error.strerror}); set GOBRRR_CACHE")
