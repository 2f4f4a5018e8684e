"""A torch of known speed on a clock of its own: what the machine's gauges are tested against, without waiting.

Every op moves the clock by what it would take; a device's ops wait in a queue until they are synchronised with.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

SIZES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "int32": 4, "uint8": 1}


class FakeClock:
    """Nanoseconds that pass only when somebody lets them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> int:
        return int(self.now)

    def advance(self, ns: float) -> None:
        self.now += ns


class Tensor:
    """A shape, a dtype and a place: no numbers but the error that they would have."""

    def __init__(self, torch: FakeTorch, shape: tuple[int, ...], dtype: str, device: str = "cpu", error: float = 0.0):
        self.torch, self.shape, self.dtype, self.device, self.error = torch, shape, dtype, device, error
        self.pinned = False

    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        return self.numel() * SIZES[self.dtype]

    def to(self, *wanted: str) -> Tensor:
        return Tensor(self.torch, self.shape, next(w for w in wanted if w in SIZES), self.device, self.error)

    def double(self) -> Tensor:
        return self.to("float64")

    def __sub__(self, other: Tensor) -> Tensor:
        return Tensor(self.torch, self.shape, self.dtype, error=abs(self.error - other.error))

    def norm(self) -> float:
        return self.error or 1.0

    def __getitem__(self, part: slice) -> Tensor:
        return Tensor(self.torch, (min(part.stop, self.shape[0]),), self.dtype, self.device)

    def pin_memory(self) -> Tensor:
        twin = Tensor(self.torch, self.shape, self.dtype)
        twin.pinned = True
        return twin

    def copy_(self, source: Tensor, non_blocking: bool = False) -> None:
        self.torch.copied(self, source)

    def fill_(self, value: int) -> Tensor:
        self.torch.filled(self)
        return self


class FakeTorch:
    """`rates[dtype]` is FLOP/s of one thread; a dtype that is missing is refused."""

    float64, float32, bfloat16, float16, int8, int32, uint8 = SIZES
    __version__ = "9.9.9"

    def __init__(
        self, clock: FakeClock, rates: dict[str, float], cores: int = 2, device: dict[str, float] | None = None
    ):
        self.clock, self.rates, self.cores, self.device_rates = clock, rates, cores, device
        self.threads, self.precision, self.grad = cores, "highest", True
        self.bytes_per_ns = 30.0
        self.dispatch_ns = 1000.0
        self.page_ns = 500.0
        self.faults = 0
        self.longest_call = 0.0
        self.medium_speedup, self.medium_error = 2.0, 5.7e-7
        self.queued = 0.0
        self.loading_ns, self.loaded = 0.0, set[object]()
        """What the first call of each kind and size takes on the device."""
        self.settings_seen: set[tuple[int, str]] = set()
        self.cuda = SimpleNamespace(
            is_available=lambda: device is not None,
            synchronize=self.synchronize,
            mem_get_info=lambda: (64 << 30, 80 << 30),
            current_device=lambda: 0,
            get_device_properties=lambda index: SimpleNamespace(
                name="NVIDIA H100 80GB HBM3", total_memory=80 << 30, major=9, minor=0
            ),
        )

    # what the process is set to
    def get_num_threads(self) -> int:
        return self.threads

    def set_num_threads(self, count: int) -> None:
        self.threads = count

    backends = SimpleNamespace(cuda=None, mkldnn=None)
    """Without the switches of each library, as before torch 2.9."""

    def get_float32_matmul_precision(self) -> str:
        return self.precision

    def set_float32_matmul_precision(self, precision: str) -> None:
        self.precision = precision

    def no_grad(self) -> FakeTorch:
        return self

    def __enter__(self) -> None:
        self.grad = False

    def __exit__(self, *error: object) -> None:
        self.grad = True

    # making tensors
    def Generator(self, device: str = "cpu") -> Any:
        return SimpleNamespace(manual_seed=lambda seed: "a generator of its own")

    def randn(self, shape: tuple[int, ...], generator: object, device: str = "cpu") -> Tensor:
        assert generator, "drew from the program's random stream"
        return Tensor(self, shape, "float32", device)

    def randint(self, low: int, high: int, shape: tuple[int, ...], generator: object, device: str = "cpu") -> Tensor:
        return self.randn(shape, generator, device)

    def empty(self, shape: Any, dtype: str = "float32", device: str = "cpu") -> Tensor:
        tensor = Tensor(self, shape if isinstance(shape, tuple) else (shape,), dtype, device)
        tensor.error = -1.0  # fresh memory, not touched yet
        return tensor

    def ones(self, shape: int, dtype: str = "float32", device: str = "cpu") -> Tensor:
        return Tensor(self, (shape,), dtype, device)

    def empty_like(self, tensor: Tensor) -> Tensor:
        return Tensor(self, tensor.shape, tensor.dtype, tensor.device)

    # ops
    def mm(self, left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
        dtype = left.dtype
        if left.device == "cuda":
            assert self.device_rates is not None
            key = "tf32" if dtype == "float32" and self.precision == "high" else dtype
            if (key, left.shape) not in self.loaded:
                self.loaded.add((key, left.shape))
                self.queue(self.loading_ns)
            self.queue(2.0 * left.shape[0] ** 3 / self._rate(self.device_rates, key) * 1e9)
            return left
        rate = self._rate(self.rates, dtype) * self.threads
        medium = dtype == "float32" and self.precision == "medium"
        self._pass(self.dispatch_ns + 2.0 * left.shape[0] ** 3 / (rate * (self.medium_speedup if medium else 1)) * 1e9)
        self.settings_seen.add((self.threads, self.precision))
        error = {"float64": 0.0}.get(dtype, self.medium_error if medium else 2.5e-7)
        return Tensor(self, left.shape, dtype, error=error)

    _int_mm = mm

    def _rate(self, rates: dict[str, float], dtype: str) -> float:
        if dtype not in rates:
            raise RuntimeError(f'"addmm" not implemented for {dtype}')
        return rates[dtype]

    def add(self, left: Tensor, right: Tensor, out: Tensor | None = None) -> None:
        if left.device == "cuda":
            self.queue(2000.0)
        self._pass(self.dispatch_ns)

    def copied(self, target: Tensor, source: Tensor) -> None:
        if "cuda" in (target.device, source.device):
            within = target.device == source.device
            self.queue(target.num_bytes / (1500.0 if within else 50.0 if source.pinned else 10.0))
        else:
            self._pass(self.dispatch_ns + 2 * target.num_bytes / (self.bytes_per_ns * self.threads))

    def filled(self, tensor: Tensor) -> None:
        pages = tensor.num_bytes // 4096 if tensor.error == -1.0 else 0
        self.faults += pages
        self._pass(self.dispatch_ns + tensor.num_bytes / self.bytes_per_ns + pages * self.page_ns)

    def queue(self, ns: float) -> None:
        self.queued += ns
        self._pass(4000.0)

    def synchronize(self) -> None:
        self._pass(self.queued)
        self.queued = 0.0

    def _pass(self, ns: float) -> None:
        self.longest_call = max(self.longest_call, ns)
        self.clock.advance(ns)
