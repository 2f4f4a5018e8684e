"""What watching costs the host while a device computes, by benchmarks/overhead.py in a process of its own.

python -m benchmarks.gpu.watching SIZE SECONDS DEVICE
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from benchmarks.gpu.rows import Row
from benchmarks.gpu.setting import Setting, run

LARGE = {"ten ms": (4096, 4, 1024)}
"""Width, layers and rows of a step that takes some 10 ms in fp32 on an H100."""


def cost(size: str, setting: Setting, seconds: float) -> Row:
    """Share that watching adds, paired; see overhead.measure."""
    said = run(["-m", "benchmarks.gpu.watching", size, str(seconds), setting.device])
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return {"watched": size, "counts": setting.real, **found}


def main() -> None:
    """Measure and print a line of JSON."""
    import torch

    from benchmarks import overhead

    overhead.STEPS |= LARGE
    if "TINY" in os.environ:
        overhead.WARM_RESTS, overhead.MIN_CYCLES = 1, 2
        overhead.STEPS = dict.fromkeys(overhead.STEPS, overhead.STEPS["tiny"])
    torch.set_num_threads(1)
    print(json.dumps(overhead.measure(sys.argv[1], float(sys.argv[2]), sys.argv[3])))


if __name__ == "__main__":
    main()
