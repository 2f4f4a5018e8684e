"""Measure the cores that parallel work gets: on a shared, quota-limited or hyper-threaded machine, not all."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from gobrrr.machine.measure.sampling import Clock, Kind, Setting, calls_for

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
