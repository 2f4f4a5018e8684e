"""What a call runs on: the device, its size, and the interpreter's environment for what it starts."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.stamp import stamp

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(".gobrrr") / "gpu"
"""Where rows are kept, and the results of a CPU or a tiny size."""
NO_DEVICE = "-1"
"""What CUDA and ROCm both take for none."""
ASKED = """
import json, torch
on = torch.cuda.is_available()
print(json.dumps({
    "count": torch.cuda.device_count() if on else 0, "name": torch.cuda.get_device_name() if on else "CPU",
    "memory": torch.cuda.get_device_properties(0).total_memory if on else None,
    "runtime": torch.version.cuda or torch.version.hip or "",
    "capability": torch.cuda.get_device_capability() if on else [0, 0],
}))
"""


@functools.cache
def there() -> dict[str, Any]:
    """The devices here, by a process of its own: rows are forked, and CUDA does not survive that."""
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Setting(NamedTuple):
    """`device`: cuda (ROCm calls itself so too) or cpu."""

    device: str
    tiny: bool

    @property
    def real(self) -> bool:
        """Whether its figures are worth a result file and a score."""
        return self.device != "cpu" and not self.tiny

    @property
    def name(self) -> str:
        """As the driver says it."""
        return str(there()["name"]) if self.device != "cpu" else "CPU"

    @property
    def count(self) -> int:
        """Devices."""
        return int(there()["count"]) if self.device != "cpu" else 0

    def prepare(self) -> None:
        """Put into this process's environment what the programs read; its children inherit it. On a CPU they see no
        device, though there be one."""
        places = [str(ROOT / "src"), str(ROOT / "lab"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ |= {"DEVICE": self.device, "PYTHONPATH": os.pathsep.join(places), "HF_HUB_OFFLINE": "1"}
        if self.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = NO_DEVICE
        os.environ.pop("TINY", None)
        if self.tiny:
            os.environ["TINY"] = "1"

    def head(self) -> dict[str, Any]:
        """The head of a result file."""
        known = there() if self.device != "cpu" else {}
        return {
            **stamp(), "device": self.name, "devices": self.count, "driver": driver() if known else "",
            "tiny": self.tiny, "device_memory": known.get("memory"), "runtime": known.get("runtime", ""),
        }  # fmt: skip

    @property
    def on(self) -> str:
        """What a row is valid for: another device, torch or gobrrr makes it anew."""
        known = stamp()
        return f"{self.name}{' tiny' if self.tiny else ''}, torch {known['torch']}, gobrrr {known['gobrrr']}"


def driver() -> str:
    """The driver's version; empty where nobody says."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.split("\n")[0].strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def run(words: list[str], cwd: Path = ROOT, env: dict[str, str] | None = None, codes: tuple[int, ...] = (0,)) -> str:
    """What Python prints that is started so. Raises RuntimeError with the end of its stderr where it left with another
    code."""
    done = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, env=env)
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(words[:4])} left with {done.returncode}: {done.stderr[-600:]}")
    return done.stdout
