"""What watching costs the host while a device computes, by benchmarks/overhead.py in a process of its own.

python -m benchmarks.gpu.watching SIZE SECONDS DEVICE
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from benchmarks.gpu.rows import Row
from benchmarks.gpu.setting import ROOT, Setting


def cost(size: str, setting: Setting, seconds: float) -> Row:
    """Share that watching adds, paired; see overhead.measure."""
    command = [sys.executable, "-m", "benchmarks.gpu.watching", size, str(seconds), setting.device]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the measurement left with {done.returncode}: {done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print a line of JSON."""
    import torch

    from benchmarks import overhead

    if "TINY" in os.environ:
        overhead.WARM_RESTS, overhead.MIN_CYCLES = 1, 2
    torch.set_num_threads(1)
    print(json.dumps(overhead.measure(sys.argv[1], float(sys.argv[2]), sys.argv[3])))


if __name__ == "__main__":
    main()
