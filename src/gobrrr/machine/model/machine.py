"""The Machine noun: what was probed here and every ceiling that was measured here, each with its spread."""

from __future__ import annotations

import msgspec

SCHEMA = "gobrrr.machine/1"


SAME_ACCURACY = 10.0
"""Medium precision is fp32 work where its error is at most this many times the default's: a changed order of
summation gives 2 to 3 times, real bf16 inputs give 10,000 times, so the line between them may lie anywhere."""


class Measured(msgspec.Struct, frozen=True):
    """One measured figure: the median of `count` samples, with the low and the high quartile, all in `unit`."""

    median: float
    low: float
    high: float
    count: int
    unit: str

    @property
    def spread(self) -> float:
        """(high - low) / median; 0 where nothing was measured."""
        return (self.high - self.low) / self.median if self.median else 0.0


class CopyCeiling(msgspec.Struct, frozen=True):
    """Bytes read plus bytes written per second by a copy whose source and target together hold `working_set` bytes."""

    working_set: int
    threads: int
    rate: Measured


class DeviceCeilings(msgspec.Struct, frozen=True):
    """Ceilings of an accelerator, measured here: FLOP/s per dtype, bytes/s, nanoseconds."""

    name: str
    memory_bytes: int
    matmul: dict[str, Measured]
    copy: Measured
    launch: Measured
    pinned: Measured
    pageable: Measured
    capability: str = ""


class Machine(msgspec.Struct, frozen=True):
    """This computer. `matmul[threads][dtype]` is FLOP/s, threads being "1" or "all".

    dtype keys: fp64, fp32 (as torch runs it by default), fp32_medium (under set_float32_matmul_precision("medium")),
    bf16, fp16, int8; `fp32_medium_error` is the relative error of the medium product against float64 where
    `fp32_error` is the default's: medium is fp32 work only where the two are of one size.
    """

    fingerprint: str
    cpu: str
    isa: tuple[str, ...]
    logical_cores: int
    memory_bytes: int
    effective_cores: Measured
    matmul: dict[str, dict[str, Measured]]
    copy: tuple[CopyCeiling, ...]
    dispatch: Measured
    """Nanoseconds for one small op (add of two 1-element tensors), its Python call included."""
    fresh_page: Measured
    """Nanoseconds that one minor page fault of a large fresh allocation costs."""
    fp32_error: float = 0.0
    fp32_medium_error: float = 0.0
    threads: int = 1
    torch_version: str = ""
    quota: float | None = None
    device: DeviceCeilings | None = None
    doubts: tuple[str, ...] = ()
    schema: str = SCHEMA
    usable_cores: int = 0
    """Cores that the affinity and the quota (rounded up) leave to this process; 0 where unknown."""
    caches: dict[str, int] = {}
    """Bytes of L1d, L2, L3 as one core sees them."""
    max_mhz: float | None = None
    governor: str | None = None
    seconds: float = 0.0
    """Seconds that the measuring took."""
    other_load: float | None = None
    """Cores that were busy just before it was measured; null where the system does not tell."""
    repeats: int = 0
    """How often doubtful figures were measured again."""

    @property
    def medium_is_fp32(self) -> bool:
        """Say whether a product under set_float32_matmul_precision("medium") is as accurate here as fp32's own."""
        return 0 < self.fp32_medium_error <= SAME_ACCURACY * self.fp32_error

    def fp32_path(self, precision: str | None, convolved: bool) -> str:
        """The key of the ceiling that an fp32 op runs under at that float32 matmul precision (None: torch's own).
        Products take oneDNN's path where they are told to, convolutions always; but these stay in fp32 where "medium"
        is bfloat16 (with AMX 160 GFLOP/s, where products reach 554)."""
        fast = self.medium_is_fp32 if convolved else precision not in (None, "highest")
        return "fp32_medium" if fast else "fp32"

    def flop_rate(self, dtype: str, threads: int) -> float | None:
        """Ceiling in FLOP/s at `threads` intra-op threads, interpolated between 1 and all; None if not measured."""
        one = self.matmul.get("1", {}).get(dtype)
        most = self.matmul.get("all", {}).get(dtype, one)
        if one is None or most is None:
            return None
        return _between(one.median, most.median, threads, self.threads)

    def byte_rate(self, working_set: float, threads: int) -> float:
        """Ceiling in bytes/s (read plus written) for a working set, from the nearest measured size at or above it."""
        few = self._copies(1)
        many = self._copies(self.threads) or few
        if not few:
            return 1e10  # no measurement at all: a slow core's memory, so that nothing is overpromised
        return _between(_at(few, working_set), _at(many, working_set), threads, self.threads)

    def _copies(self, threads: int) -> list[CopyCeiling]:
        return sorted((c for c in self.copy if c.threads == threads), key=lambda c: c.working_set)


def _at(copies: list[CopyCeiling], working_set: float) -> float:
    return next((c.rate.median for c in copies if c.working_set >= working_set), copies[-1].rate.median)


def _between(one: float, most: float, threads: int, all_threads: int) -> float:
    if threads <= 1 or all_threads <= 1:
        return one
    return one + (most - one) * min(1.0, (threads - 1) / (all_threads - 1))


def _nothing(unit: str, value: float = 0.0) -> Measured:
    return Measured(value, value, value, 0, unit)


UNKNOWN = Machine(
    fingerprint="", cpu="not this computer", isa=(), logical_cores=1, memory_bytes=0,
    effective_cores=_nothing("cores", 1.0), matmul={}, copy=(), dispatch=_nothing("ns"), fresh_page=_nothing("ns"),
)  # fmt: skip
