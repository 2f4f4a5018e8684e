"""One experiment in a process of its own: `python -m gobrrr_lab.measure.stage NAME SECONDS TINY MACHINE RESULT`.

So threads, caches and compiled code of one experiment are nothing to the next, and one that hangs can be ended.
"""

from __future__ import annotations

import signal
import sys
import time
from datetime import date
from pathlib import Path

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.machine.model.machine import Machine
from gobrrr.system import files
from gobrrr_lab import load
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Result, cpu_of
from gobrrr_lab.measure.verdict import CANNOT, judged


def main() -> int:
    """Measure, and put the result into a file."""
    name, seconds, tiny, machine, result = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # folders and ranks are cleared away
    there = msgspec.json.decode(Path(machine).read_bytes(), type=Machine)
    bench = Bench(there, float(seconds), tiny == "1")
    files.write(Path(result), msgspec.json.encode(measured(name, load()[name], bench)))
    return 0


def measured(name: str, experiment: Experiment, bench: Bench) -> Result:
    """The receipt: what was found, judged by what the experiment has named before."""
    began, machine = time.monotonic(), bench.machine
    result = Result(
        name, experiment.number, CANNOT, published=experiment.published, cpu=cpu_of(machine),
        cores=machine.usable_cores, device=machine.device.name if machine.device else "",
        torch=machine.torch_version, date=date.today().isoformat(),
    )  # fmt: skip
    try:
        found = experiment.measure(bench)
    except GobrrrError as error:
        return msgspec.structs.replace(result, why_not=error.message)
    return msgspec.structs.replace(
        result, verdict=judged(experiment, found.factor), found=found, seconds=round(time.monotonic() - began, 1)
    )


if __name__ == "__main__":
    sys.exit(main())
