"""What the chip itself gives: forms of one computation, each with its time by the device's own events and its error.

Without a device the host's clock stands in for events, and a graph, a stream or a format that a CPU lacks is told as
absent, so that all but the device's own call is run.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.gpu.rows import Row
from benchmarks.gpu.setting import Setting

Call = Callable[[], Any]


class Form(NamedTuple):
    """One way of computing it. `make` is called once and returns the call that is timed; what it raises is told."""

    name: str
    make: Callable[[], Call]
    published: float | None = None
    """Times by which it was said to be faster than the first."""


def forms(setting: Setting, kinds: list[Form], rounds: int = 5, seconds: float = 0.15) -> list[Row]:
    """Median ms of each, in turns; ratio of the first over it; error of its result against the first's."""
    calls: dict[str, Call] = {}
    rows: dict[str, Row] = {}
    for form in kinds:
        rows[form.name] = {"name": form.name, "ms": None, "ratio": None, "published": form.published, "error": None}
        try:
            calls[form.name] = form.make()
            rows[form.name]["result"] = calls[form.name]()
            calls[form.name]()
        except Exception as error:  # a chip or a build that lacks it
            calls.pop(form.name, None)
            rows[form.name]["why_not"] = (
                f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
            )
    counts = {name: max(1, int(seconds * 1e3 / max(1e-3, _ms(call, 2, setting)))) for name, call in calls.items()}
    counts = counts if setting.real else dict.fromkeys(counts, 2)
    seen: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds if setting.real else 2):
        for name, call in calls.items():
            seen[name].append(_ms(call, counts[name], setting))
    first = next(iter(rows.values()))
    reference = first.get("result")
    for name, times in seen.items():
        row = rows[name]
        row["ms"] = statistics.median(times)
        row["ratio"] = statistics.median(seen[first["name"]]) / row["ms"] if first["name"] in seen else None
        row["error"] = _error(row.get("result"), reference)
    return [{key: value for key, value in row.items() if key != "result"} for row in rows.values()]


def _ms(call: Call, count: int, setting: Setting) -> float:
    if setting.device == "cpu":
        began = time.perf_counter()
        for _ in range(count):
            call()
        return 1e3 * (time.perf_counter() - began) / count
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / count


def _error(one: Any, other: Any) -> float | None:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.shape != other.shape:
        return None
    scale = other.double().norm()
    return float((one.double() - other.double()).norm() / scale) if scale else None


def products(setting: Setting) -> Row:
    """A large product in each format: fp32, TF32, bf16, fp16, fp8, 2:4."""
    size, device = 64 if setting.tiny else 8192, setting.device
    torch.manual_seed(0)
    a, b = (torch.randn(size, size, device=device) / 8 for _ in range(2))

    def at(precision: str) -> Call:
        def call() -> Tensor:
            torch.set_float32_matmul_precision(precision)
            return a @ b

        return call

    def cast(kind: torch.dtype) -> Call:
        one, two = a.to(kind), b.to(kind)
        return lambda: one @ two

    def fp8() -> Call:
        one, two = a.to(torch.float8_e4m3fn), b.t().contiguous().to(torch.float8_e4m3fn).t()
        scale = torch.ones((), device=device)
        return lambda: torch._scaled_mm(one, two, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)

    def sparse() -> Call:
        half = torch.tensor([1, 1, 0, 0], device=device).repeat(size // 4)
        packed, two = torch.sparse.to_sparse_semi_structured((a * half).bfloat16()), b.bfloat16()
        return lambda: packed @ two

    found = forms(setting, [
        Form("fp32", lambda: at("highest")), Form("TF32", lambda: at("high"), 7.4),
        Form("bf16", lambda: cast(torch.bfloat16), 14.8), Form("fp16", lambda: cast(torch.float16), 14.8),
        Form("fp8", fp8, 29.5), Form("bf16, 2:4", sparse, 29.5),
    ])  # fmt: skip
    return {"forms": found, "note": "published: ratios of the H100's data sheet; 2:4 computes with half the weights"}


def attention(setting: Setting) -> Row:
    """Attention forward and backward in bf16 by each backend of SDPA, over attention by hand."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shape = (1, 2, 32, 16) if setting.tiny else (16, 16, 1024, 64)
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, device=setting.device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))

    def through(mixed: Tensor) -> Tensor:
        torch.autograd.grad(mixed, (q, k, v), torch.ones_like(mixed))
        return mixed.detach()

    def hand() -> Tensor:
        return through(((q @ k.transpose(-2, -1)) * shape[-1] ** -0.5).softmax(-1) @ v)

    def by(backend: SDPBackend) -> Call:
        def call() -> Tensor:
            with sdpa_kernel(backend):
                return through(nn.functional.scaled_dot_product_attention(q, k, v))

        return call

    names = ("MATH", "EFFICIENT_ATTENTION", "FLASH_ATTENTION", "CUDNN_ATTENTION")
    kinds = [Form(name.lower(), lambda name=name: by(getattr(SDPBackend, name))) for name in names]  # type: ignore[misc]
    return {"forms": forms(setting, [Form("by hand", lambda: hand), *kinds])}


def graph_of(call: Call, setting: Setting) -> Call:
    """The call captured as a CUDA graph; on a CPU itself."""
    if setting.device == "cpu":
        return call
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()

    def replay() -> Any:
        graph.replay()
        return out

    return replay


def optional(setting: Setting) -> Row:
    """Kernels of Liger and torchao over torch's own, where their wheels lie."""
    rows, width, words = (8, 16, 32) if setting.tiny else (4096, 1024, 32768)
    torch.manual_seed(0)
    kind = torch.float32 if setting.device == "cpu" else torch.bfloat16
    x = torch.randn(rows, width, device=setting.device, dtype=kind, requires_grad=True)
    head = nn.Linear(width, words, bias=False, device=setting.device, dtype=kind)
    labels = torch.randint(0, words, (rows,), device=setting.device)

    def trained(loss: Call) -> Call:
        def call() -> Tensor:
            found = loss()
            found.backward()
            return found.detach()  # type: ignore[no-any-return]

        return call

    def liger() -> Call:
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss  # type: ignore[import-not-found]

        fused = LigerFusedLinearCrossEntropyLoss()
        return trained(lambda: fused(head.weight, x, labels))

    def eighth() -> Call:
        from torchao.float8 import convert_to_float8_training  # type: ignore[import-not-found]

        net = convert_to_float8_training(nn.Sequential(copy.deepcopy(head)))
        return trained(lambda: nn.functional.cross_entropy(net(x).float(), labels))

    plain = trained(lambda: nn.functional.cross_entropy(head(x).float(), labels))
    kinds = [Form("linear, cross entropy", lambda: plain), Form("Liger", liger), Form("torchao float8", eighth)]
    return {"forms": forms(setting, kinds)}


ROWS = {"products": products, "attention": attention, "optional": optional}
