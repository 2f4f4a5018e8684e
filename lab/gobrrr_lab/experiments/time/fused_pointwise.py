"""5: two pointwise ops in a row read and write memory twice; as one kernel, once."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found, Row

KERNEL = """
#include <cmath>
extern "C" void twice(const float* x, float* y, long n, int threads) {
#pragma omp parallel for simd num_threads(threads)
  for (long i = 0; i < n; ++i) y[i] = cosf(cosf(x[i]));
}
"""


def measure(bench: Bench) -> Found:
    """On one tensor that no cache holds: eager, compiled to one loop, and as one loop by hand; one cosine alone."""
    torch = bench.torch
    x = torch.rand(bench.size(1 << 25, 1 << 12))
    once, twice = torch.compile(lambda x: x.cos()), torch.compile(lambda x: x.cos().cos())
    once(x)
    twice(x)
    with tempfile.TemporaryDirectory(prefix="gobrrr-lab-") as folder:
        kernel = by_hand(torch, folder)
        if not torch.allclose(kernel(x), x.cos().cos(), atol=1e-5):
            raise GobrrrError("the kernel by hand computes something else")
        factor = bench.pair(lambda: x.cos().cos(), lambda: twice(x), of=5)
        ours = bench.pair(lambda: x.cos().cos(), lambda: kernel(x), of=5)
        one = bench.time(lambda: kernel(x), of=5)
    eager, alone = bench.time(lambda: x.cos(), of=5), bench.time(lambda: once(x), of=5)
    num_bytes = 2.0 * 4 * x.numel()
    floor = 1e9 * num_bytes / bench.byte_rate(num_bytes)
    bound = eager.value < 2 * floor
    cause = "" if bound else (
        f"A cosine takes {eager.value / floor:.0f} times as long as its bytes: arithmetic, which both do twice. The "
        f"gain is that of the compiler's cosine ({eager.value / alone.value:.1f} times as fast), not of fewer trips."
    )  # fmt: skip
    rows = (Row("x.cos(), eager", eager, floor, unit="ns"), Row("x.cos(), compiled", alone, floor, unit="ns"),
            Row("x.cos().cos(), one kernel by hand", one, floor, unit="ns"),
            Row("eager over the kernel by hand", ours, 2.0 if bound else None, unit="x"))  # fmt: skip
    return Found(factor, 2.0 if bound else None, rows, cause)


def by_hand(torch: Any, folder: str) -> Callable[[Any], Any]:
    """The same as one loop in C++, built into `folder`; of contiguous fp32, on one thread for each of torch's. Raises
    GobrrrError where it cannot be built."""
    source, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
    source.write_text(KERNEL)
    # -ffast-math lets the loop use the C library's cosines of vectors; linked without it, no denormals are flushed
    fast = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-fPIC"]
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or "g++"
    commands = ([compiler, *fast, "-c", str(source), "-o", f"{source}.o"],
                [compiler, "-shared", "-fopenmp", f"{source}.o", "-o", str(library), "-lm"])  # fmt: skip
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise GobrrrError(f"the kernel was not built: {(done.stderr.splitlines() or ['?'])[0]}")
    twice = ctypes.CDLL(str(library)).twice
    twice.argtypes, twice.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_int], None

    def call(x: Any) -> Any:
        out = torch.empty_like(x)
        twice(x.data_ptr(), out.data_ptr(), x.numel(), torch.get_num_threads())
        return out

    return call


EXPERIMENT = Experiment(
    number=5, chapter="time", title="x.cos().cos(): eager, compiled, and as one kernel",
    claim="A pointwise op costs its memory traffic; two of them fused take one trip instead of two: half the time.",
    source="Horace He, Making Deep Learning Go Brrrr From First Principles (2022)",
    published="2x on an A100 (no table in the text)",
    factor="time of eager over time of compiled, 2^25 elements of fp32",
    reproduced=(1.6, 2.6),
    why="Both versions compute the same cosines. Eager writes the first result to memory and reads it back: 16 "
    "bytes per element instead of 8. That halves the time only where bytes are what it waits for: on a GPU. On a "
    "few cores a cosine of some 20 instructions takes longer than its trip to memory, so fusing alone gains little.",
    measure=measure, finding=("swish_by_hand", "BRR201"), needs=("torch", "compiler"), seconds=15.0,
)  # fmt: skip
