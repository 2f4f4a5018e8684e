"""Tables of the course on efficient deep learning on a device, each beside its published figure; and the lab's
experiments that need a device, each with its receipt in benchmarks/results/lab where it is a real one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from benchmarks.gpu.chip import Call, Form, forms, graph_of
from benchmarks.gpu.rows import Row
from benchmarks.gpu.setting import ROOT, Setting
from gobrrr.machine.measure.store import load_or_measure
from gobrrr_lab import load
from gobrrr_lab.measure.runner import run
from gobrrr_lab.show.text import figure_text

KEPT = ROOT / "benchmarks" / "results" / "lab"


def names() -> list[str]:
    """Experiments of the lab that need a device."""
    return [name for name, one in load().items() if "device" in one.needs]


def measured(name: str, setting: Setting) -> Row:
    """Verdict and figure of one; without a device that it cannot run here."""
    one = load()[name]
    (result,) = run({name: one}, load_or_measure(), tiny=not setting.real, folder=KEPT / setting.name.replace(" ", "-"))
    told = figure_text(result.found.factor, one.unit) if result.found else result.why_not
    return {"lab": result.verdict, "told": told, "published": one.published, "result": msgspec.to_builtins(result)}


def vocabulary(setting: Setting) -> Row:
    """A head of 50257 words and of 50304, forward and backward (nanoGPT: a step 25 % faster on an A100)."""
    rows, width = (16, 32) if setting.tiny else (8192, 768)
    sizes = (1001, 1024) if setting.tiny else (50257, 50304)

    def head(words: int, kind: torch.dtype) -> Call:
        x = torch.randn(rows, width, device=setting.device, dtype=kind, requires_grad=True)
        weights = torch.randn(words, width, device=setting.device, dtype=kind, requires_grad=True)
        labels = torch.randint(0, 1000, (rows,), device=setting.device)

        def call() -> None:
            torch.autograd.grad(nn.functional.cross_entropy(x @ weights.t(), labels), (x, weights))

        return call

    kinds = {"bf16": torch.bfloat16, "fp32": torch.float32}
    return {"forms": [row for name, kind in kinds.items() for row in forms(setting, [
        Form(f"{words}, {name}", lambda words=words, kind=kind: head(words, kind),  # type: ignore[misc]
             1.25 if words == sizes[1] and name == "bf16" else None) for words in sizes
    ])]}  # fmt: skip


def flash(length: int, published: float, setting: Setting) -> Row:
    """GPT-2 small in fp16: a step with attention by hand, and fused (FlashAttention: 3.5x over Hugging Face's at 1024,
    1.7x, 1.6x and 1.3x over Megatron's at 1024, 2048 and 4096, on A100s)."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "gpu" / "models"))
    from plain import Block, Language  # type: ignore[import-not-found]

    words, width, heads, layers = (100, 32, 2, 1) if setting.tiny else (50257, 768, 12, 12)
    length = 32 if setting.tiny else length

    class Fused(Block):  # type: ignore[misc]
        def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
            batch, length, width = x.shape
            query, key, value = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1, is_causal=self.causal)
            return self.out(mixed.transpose(1, 2).reshape(batch, length, width))  # type: ignore[no-any-return]

    def step(fused: bool) -> Call:
        model = Language(words, length, width, heads, layers)
        if fused:
            for block in model.blocks:
                block.__class__ = Fused
        return _step(model.to(setting.device), torch.randint(0, words, (max(1, 4096 // length), length)), setting,
                     fused=fused)  # fmt: skip

    kinds = [Form("by hand", lambda: step(False)), Form("fused", lambda: step(True), published)]
    return {"forms": forms(setting, kinds, rounds=3)}


def lightseq(setting: Setting) -> Row:
    """BERT base in fp16, 64 rows of 128: as written, and with what torch has for it (LightSeq2: 1.70x, one GPU)."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "gpu" / "models"))
    from plain import Language

    words, width, heads, layers = (100, 32, 2, 1) if setting.tiny else (30522, 768, 12, 12)
    ids = torch.randint(0, words, (4, 16) if setting.tiny else (64, 128))

    def step(compiled: bool, fused: bool) -> Call:
        model: Any = Language(words, ids.shape[1], width, heads, layers, causal=False).to(setting.device)
        backend = "aot_eager" if setting.tiny else "inductor"
        return _step(torch.compile(model, backend=backend) if compiled else model, ids, setting, fused)

    return {"forms": forms(setting, [
        Form("as written", lambda: step(False, False)), Form("fused Adam", lambda: step(False, True)),
        Form("compiled, fused Adam", lambda: step(True, True), 1.70),
    ], rounds=3)}  # fmt: skip


def _step(model: Any, ids: Tensor, setting: Setting, fused: bool) -> Call:
    """A training step in fp16 with a scaler; bf16 on a CPU."""
    ids, cpu = ids.to(setting.device), setting.device == "cpu"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **({"fused": True} if fused else {"foreach": False}))
    scaler = torch.amp.GradScaler(setting.device, enabled=not cpu)

    def call() -> None:
        with torch.autocast(setting.device, torch.bfloat16 if cpu else torch.float16):
            loss = model(input_ids=ids, labels=ids)[0]
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return call


def norms(setting: Setting) -> Row:
    """LayerNorm forward and backward: by hand in two passes, by E[x^2] - E[x]^2, torch's kernel, compiled by hand."""
    torch.manual_seed(0)
    x = torch.randn((64, 32) if setting.tiny else (65536, 1024), device=setting.device, requires_grad=True)
    weight, bias = (torch.ones(x.shape[1], device=setting.device, requires_grad=True) for _ in range(2))

    def two(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * weight + bias

    def one(x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        return (x - mean) * torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean + 1e-5) * weight + bias

    def kernel(x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], weight, bias)

    def both(forward: Callable[[Tensor], Tensor]) -> Call:
        def call() -> Tensor:
            y = forward(x)
            torch.autograd.grad(y, (x, weight, bias), torch.ones_like(y))
            return y.detach()

        return call

    compiled = torch.compile(two, backend="aot_eager" if setting.tiny else "inductor")
    kinds = {"by hand, two passes": two, "by hand, one pass": one, "torch's kernel": kernel, "compiled": compiled}
    return {"forms": forms(setting, [Form(name, lambda each=each: both(each)) for name, each in kinds.items()])}  # type: ignore[misc]


def launches(setting: Setting) -> Row:
    """One addition by its size: below some size the launch is all of its time, and a graph takes most of it away."""
    rows = []
    for power in (6, 12) if setting.tiny else (6, 12, 16, 20, 24, 27):
        x = torch.ones(1 << power, device=setting.device)

        def hundred(x: Tensor = x) -> Tensor:
            for _ in range(100):
                x = x + 1
            return x

        rows += forms(setting, [Form(f"2^{power}", lambda call=hundred: call),
                                Form(f"2^{power}, graph", lambda call=hundred: graph_of(call, setting))])  # type: ignore[misc]  # fmt: skip
    return {"forms": rows, "note": "ms of a hundred additions"}


def batches(setting: Setting) -> Row:
    """Products of 1000 x 1000 by how many go to the device at once, copies in and out counted: the course has 20 ms for
    one, of which 0.5 % computes."""
    side = 32 if setting.tiny else 1000
    weights = torch.randn(side, side, device=setting.device)
    rows = []
    for count in (1, 4) if setting.tiny else (1, 8, 64, 256):
        host = torch.randn(count, side, side)
        there = host.to(setting.device)

        def there_and_back(host: Tensor = host) -> Tensor:
            return (host.to(setting.device) @ weights).cpu()

        def alone(there: Tensor = there) -> Tensor:
            return there @ weights

        kinds = {"with copies": there_and_back, "computing alone": alone}
        rows += forms(setting, [Form(f"{count}, {name}", lambda call=call: call) for name, call in kinds.items()])  # type: ignore[misc]
    return {"forms": rows}


def waves(setting: Setting) -> Row:
    """Products whose tiles of 128 x 128 fill whole waves of the multiprocessors, and a few more."""
    inner, units = (32, 4) if setting.tiny else (4096, 132)
    if setting.device != "cpu":
        units = torch.cuda.get_device_properties(0).multi_processor_count
    kind, tile = (torch.float32, 8) if setting.device == "cpu" else (torch.bfloat16, 128)
    rows = []
    for tiles in (units, units + 4, 2 * units, 2 * units + 4, 4 * units):
        a = torch.randn(tile * tiles, inner, device=setting.device, dtype=kind)
        b = torch.randn(inner, tile, device=setting.device, dtype=kind)
        (row,) = forms(setting, [Form(f"{tiles} tiles on {units} units", lambda a=a, b=b: lambda: a @ b)])  # type: ignore[misc]
        rows.append({**row, "tera": 2 * a.numel() * tile / row["ms"] / 1e9 if row["ms"] else None})
    return {"forms": rows, "note": "tera: FLOP/s; a wave too many shows as a fall"}


ROWS: dict[str, Callable[[Setting], Row]] = {
    "vocabulary": vocabulary, "GPT-2, 1024": lambda s: flash(1024, 3.5, s), "BERT in fp16": lightseq,
    "LayerNorm": norms, "launches": launches, "batches": batches, "waves": waves,
    "GPT-2, 2048": lambda s: flash(2048, 1.6, s), "GPT-2, 4096": lambda s: flash(4096, 1.3, s),
}  # fmt: skip
