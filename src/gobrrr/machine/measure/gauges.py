"""The gauges of a processor, built on torch: matrix products, copies, dispatch, fresh pages.

torch comes in as an argument, so that importing this loads none and tests can bring a machine of their own making.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from gobrrr.machine.measure.sampling import BATCH_NS, Budget, Clock, Kind, Repeated, Setting, calls_for, shortest
from gobrrr.machine.probe.matmul_precision import matmul_precision, setting_back

GROW_BELOW_NS = 3e6
"""A product this quick is tried at twice the size: eight times the work, so at most 24 ms, and still under 0.25 s
should the larger size fall off a cliff ten times deep (fp16 without hardware loses 2 to 3 times per size)."""
SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
COPY_SIZES = tuple(1 << bits for bits in range(16, 29, 2))
"""Working sets from 64 KiB to 256 MiB, one per factor of four: L1, L2, L3 and main memory of any CPU so far."""
PAGE_BLOCK = 64 << 20
"""Twice the largest threshold below which glibc's malloc starts to keep freed memory, so that each is fresh."""
CPU_DTYPES = ("fp64", "fp32", "fp32_medium", "bf16", "fp16", "int8")
TORCH_NAMES = {"fp64": "float64", "bf16": "bfloat16", "fp16": "float16", "int8": "int8"}
PRECISIONS = {"fp32_medium": "medium", "tf32": "high"}

Run = Callable[[int], object]
Enter = Callable[[Setting], object]


@contextmanager
def switches(torch: Any) -> Iterator[Enter]:
    """Yield the function that enters a Setting; on leaving, thread count, precision and grad mode are as they were."""
    threads, set_back = torch.get_num_threads(), setting_back(torch)
    now = [Setting(threads, matmul_precision(torch))]

    def enter(setting: Setting) -> None:
        if setting.threads != now[0].threads:
            torch.set_num_threads(setting.threads)
        if setting.precision != now[0].precision:
            torch.set_float32_matmul_precision(setting.precision)
        now[0] = setting

    try:
        with torch.no_grad():
            yield enter
    finally:
        torch.set_num_threads(threads)
        set_back()


def product(torch: Any, dtype: str, num_rows: int, device: str = "cpu") -> Run:
    """A function that multiplies two fixed square matrices so many times, into memory that is already there.

    The entries come from a generator of its own: the program's random stream stays untouched, and no value is denormal.
    """
    source = {"generator": torch.Generator(device=device).manual_seed(num_rows), "device": device}
    shape = (num_rows, num_rows)
    kind = getattr(torch, TORCH_NAMES.get(dtype, "float32"))
    if dtype == "int8":
        left, right = (torch.randint(-8, 8, shape, **source).to(kind) for _ in range(2))
    else:
        left, right = (torch.randn(shape, **source).to(kind) for _ in range(2))
    multiply = torch._int_mm if dtype == "int8" else torch.mm
    out = torch.empty(shape, dtype=torch.int32 if dtype == "int8" else kind, device=device)
    return repeating(partial(multiply, left, right, out=out))


def repeating(call: Callable[[], object]) -> Run:
    """The function that calls it so many times."""

    def run(calls: int) -> None:
        for _ in range(calls):
            call()

    return run


def matmul_gauge(
    torch: Any, key: str, dtype: str, setting: Setting, clock: Clock, sizes: Sequence[int], device: str = "cpu",
    wait: Callable[[], object] | None = None,
) -> Repeated | None:  # fmt: skip
    """The gauge of the size with the highest rate; None where torch refuses the dtype.

    Sizes grow from the first until a call takes long enough to be timed, so that a dtype without hardware, hundreds
    of times slower than its neighbours, costs milliseconds here and not a minute.
    """
    best: Repeated | None = None
    best_rate = 0.0
    for size in sizes:
        try:
            run = waiting(product(torch, dtype, size, device), wait)
            if wait is not None:
                run(1)  # a device loads its libraries and kernels at their first call: 0.1 s, at any size
            each = shortest(run, 1, clock, 10 * GROW_BELOW_NS)
        except (RuntimeError, NotImplementedError, TypeError, AttributeError):
            break
        amount = 2.0 * size**3
        if amount / each > best_rate:
            best_rate = amount / each
            best = Repeated(key, "FLOP/s", run, max(1, round(BATCH_NS / each)), setting, amount)
        if each >= GROW_BELOW_NS:
            break
    return best


def waiting(run: Run, wait: Callable[[], object] | None) -> Run:
    """The same, but it returns when an asynchronous device has finished."""
    if wait is None:
        return run

    def run_and_wait(calls: int) -> None:
        run(calls)
        wait()

    return run_and_wait


def copy_sizes(memory_bytes: int, last_cache: int) -> tuple[int, ...]:
    """Working sets to copy: the fixed steps, and twice the last cache if that is more; up to a 16th of the memory."""
    most = min(512 << 20, max(1 << 20, memory_bytes // 16))
    beyond = min(512 << 20, 2 * last_cache)
    sizes = {*COPY_SIZES, beyond if beyond > max(COPY_SIZES) else 0}
    return tuple(sorted(size for size in sizes if COPY_SIZES[0] <= size <= most))


def copy_gauges(torch: Any, sizes: tuple[int, ...], threads: int, enter: Enter, budget: Budget) -> list[Repeated]:
    """One gauge per working set, in one thread and in all, on the heads of two buffers that were touched before.

    What a copy of one element costs is taken off, so that small working sets give the rate of the cache and not the
    cost of the call. The largest comes first, because main memory matters most when half of the time is gone.
    """
    enter(Setting(threads))  # who touches a page first decides on which memory node it lies
    target, source = (torch.ones(max(sizes) // 8, dtype=torch.float32) for _ in range(2))
    gauges: list[Repeated] = []
    for count in sorted({1, threads}):
        enter(Setting(count))
        one = repeating(partial(target[:1].copy_, source[:1]))
        overhead = Repeated("", "ns", one, calls_for(one, budget.clock)).sample(budget.clock)
        for size in (sizes[-1], *sizes[:-1]):
            if budget.over(0.5) and size != sizes[-1]:
                break
            run = repeating(partial(target[: size // 8].copy_, source[: size // 8]))
            calls = calls_for(run, budget.clock)
            key = f"copy/{count}/{size}"
            gauges.append(Repeated(key, "B/s", run, calls, Setting(count), float(size), overhead, warm=calls > 1))
    return gauges


def dispatch_gauge(torch: Any, clock: Clock) -> Repeated:
    """One add of two 1-element tensors, its Python call included, in one thread."""
    left, right = torch.ones(1), torch.ones(1)

    def run(calls: int) -> None:
        add = torch.add
        for _ in range(calls):
            add(left, right)

    return Repeated("dispatch", "ns", run, calls_for(run, clock))


class FreshPages:
    """Nanoseconds per minor fault of a large fresh allocation: allocate, fill and free, less a fill of warm memory."""

    key = "page"
    unit = "ns"
    kind: Kind = "cost"

    def __init__(self, torch: Any, num_bytes: int, threads: int, faults: Callable[[], int] | None = None) -> None:
        self.setting = Setting(threads)
        self._torch = torch
        self._num_bytes = num_bytes
        self._faults = faults or _minor_faults
        self._warm = torch.ones(num_bytes, dtype=torch.uint8)

    def sample(self, clock: Clock) -> float:
        """0 where the allocator gave memory that was touched before, so that nothing faulted."""
        start = clock()
        self._warm.fill_(1)
        warm = clock() - start
        faults, start = self._faults(), clock()
        block = self._torch.empty(self._num_bytes, dtype=self._torch.uint8)
        block.fill_(1)
        del block
        fresh, faults = clock() - start, self._faults() - faults
        return max(0.0, fresh - warm) / faults if faults >= 16 else 0.0


def _minor_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def fp32_errors(torch: Any, enter: Enter, threads: int) -> tuple[float, float]:
    """Relative error (Frobenius) of a 512 x 512 fp32 product against float64, by default and under "medium"."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn((512, 512), generator=generator) for _ in range(2))
    exact = torch.mm(left.double(), right.double())
    errors = []
    for precision in ("highest", "medium"):
        enter(Setting(threads, precision))
        errors.append(float((torch.mm(left, right).double() - exact).norm() / exact.norm()))
    return errors[0], errors[1]


def cpu_matmuls(torch: Any, threads: int, enter: Enter, budget: Budget) -> list[Repeated]:
    """The matrix products in one thread and in all; stops adding dtypes when half of the time is gone."""
    gauges: list[Repeated] = []
    for dtype in CPU_DTYPES:
        sizes: Sequence[int] = SIZES
        for label, count in {"1": 1, "all": threads}.items() if threads > 1 else [("1", 1)]:
            if budget.over(0.5):
                return gauges
            setting = Setting(count, PRECISIONS.get(dtype, "highest"))
            enter(setting)
            gauge = matmul_gauge(torch, f"matmul/{label}/{dtype}", dtype, setting, budget.clock, sizes)
            if gauge is None:
                break
            gauges.append(gauge)
            # all threads need no smaller matrices than one does, and a busy machine must not stop their growth
            sizes = [size for size in SIZES if 2.0 * size**3 >= gauge.amount]
    return gauges


CHUNKS = 4
"""Tasks per thread in one round: a thread that is held up leaves its tasks to the others, as a good scheduler would."""
_ROUND_NS = 20e6  # ns of work per thread in one round; proposed: a wake-up is short beside it; its spread settles it


def spin(iterations: int) -> None:
    """Pure computation in C with the GIL released, that touches no memory to speak of: chained SHA-256."""
    hashlib.pbkdf2_hmac("sha256", b"gobrrr", b"salt", max(1, iterations))


class CoresGauge:
    """Throughput of `num_cores` threads over that of one: the cores that parallel work gets.

    One sample times the same number of tasks per thread, first in one thread, then in all, so that both halves see the
    machine in nearly the same state.
    """

    key = "cores"
    unit = "cores"
    kind: Kind = "level"
    setting = Setting()

    def __init__(self, num_cores: int, clock: Clock) -> None:
        self.num_cores = num_cores
        self._pool = ThreadPoolExecutor(num_cores, thread_name_prefix="gobrrr-cores")
        self._iterations = calls_for(spin, clock, _ROUND_NS / CHUNKS, most=10_000_000)

    def __enter__(self) -> CoresGauge:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def sample(self, clock: Clock) -> float:
        """Cores' worth of work done in parallel, at most `num_cores`."""
        if self.num_cores == 1:
            return 1.0
        one = self._round(clock, CHUNKS, threads=1)
        many = self._round(clock, CHUNKS * self.num_cores, threads=self.num_cores)
        return min(float(self.num_cores), self.num_cores * one / many)

    def _round(self, clock: Clock, tasks: int, threads: int) -> int:
        start = clock()
        if threads == 1:
            for _ in range(tasks):
                spin(self._iterations)
        else:
            list(self._pool.map(spin, [self._iterations] * tasks))
        return max(clock() - start, 1)
