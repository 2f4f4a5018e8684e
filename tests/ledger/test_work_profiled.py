"""Work per op on what torch.profiler really records: small models, forward, backward and update.

Total FLOPs must be those of FlopCounterMode plus what it is known to miss (attention and LSTM on a CPU), each counted
once although wrappers and the ops inside them are both in the trace; and hardly any time may be left without a price.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from gobrrr.ledger.work import Work, assign, is_wrapper, work_of  # noqa: E402
from gobrrr.ledger.work.assign import COMPOSITE  # noqa: E402

MODEL_KINDS = ("matmul", "convolution", "attention", "rnn")


class Row(NamedTuple):
    """What one event was recorded with."""

    shapes: tuple[Any, ...]
    dtypes: tuple[str, ...]
    concrete: tuple[str, ...]
    strides: tuple[Any, ...]


class Profile(NamedTuple):
    """A trace's ops in order, with self times in microseconds."""

    names: list[str]
    parents: list[int]
    rows: list[Row | None]
    own: list[float]


def tuples(tree: Any) -> Any:
    """Nested lists as nested tuples."""
    return tuple(map(tuples, tree)) if isinstance(tree, list) else tree


def profiled(step: Callable[[], object], path: Path) -> Profile:
    """One step under the profiler, exported and read back."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as found:
        step()
    found.export_chrome_trace(str(path))
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") in ("cpu_op", "user_annotation")]
    threads = {e["tid"] for e in events}
    result = Profile([], [], [], [])
    for thread in sorted(threads, key=str):
        _nest([e for e in events if e["tid"] == thread], result)
    return result


def _nest(events: list[dict[str, Any]], into: Profile) -> None:
    open_ops: list[tuple[int, float]] = []
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        while open_ops and open_ops[-1][1] <= event["ts"]:
            open_ops.pop()
        parent = open_ops[-1][0] if open_ops else -1
        args = event["args"]
        keys = ("Input Dims", "Input type", "Concrete Inputs", "Input Strides")
        into.rows.append(Row(*(tuples(args.get(k, [])) for k in keys)) if "Input type" in args else None)
        into.names.append(event["name"]), into.parents.append(parent), into.own.append(event["dur"])
        if parent >= 0:
            into.own[parent] -= event["dur"]
        open_ops.append((len(into.names) - 1, event["ts"] + event["dur"]))


def model_flops(works: list[Work | None]) -> float:
    """FLOPs of products, convolutions, attention and recurrent layers."""
    return sum(w.flops for w in works if w is not None and w.kind in MODEL_KINDS)


class Block(torch.nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, dim: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(dim, 4 * dim), torch.nn.GELU(), torch.nn.Linear(4 * dim, dim))
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(b, t, c)))
        return x + self.mlp(self.norm2(x))


def training(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor, optimizer: Any) -> Callable[[], None]:
    """A training step with gradient clipping."""

    def step() -> None:
        logits = model(inputs)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


class LastState(torch.nn.Module):
    """An LSTM and a head over its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = torch.nn.LSTM(16, 32, 2), torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


def transformer() -> tuple[Callable[[], None], float]:
    """Step, and the FLOPs that FlopCounterMode misses: attention forward (2 products) and backward (5)."""
    model = torch.nn.Sequential(torch.nn.Embedding(100, 64), Block(), Block(), torch.nn.Linear(64, 100))
    tokens = torch.randint(0, 100, (4, 32))
    optimizer = torch.optim.AdamW(model.parameters())
    return training(model, tokens, tokens, optimizer), 2 * (2 + 5) * (2 * 4 * 4 * 32 * 32 * 16)


def convolutional() -> tuple[Callable[[], None], float]:
    """A small residual-style classifier with a grouped, a dilated and a transposed convolution. FlopCounterMode pairs
    all channels in the gradient of a grouped weight: with two groups one forward too much."""
    nn = torch.nn
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=2), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 16, 3, dilation=2, padding=2), nn.ConvTranspose2d(16, 8, 2, stride=2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    grouped = 2 * (8 * 32 * 8 * 8) * (8 * 9)
    return training(model, torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,)), optimizer), -grouped


def recurrent() -> tuple[Callable[[], None], float]:
    """Two LSTM layers: forward, and twice that backward, is all missed."""
    model = LastState()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    lstm = 2 * (7 * 4) * 128 * ((16 + 32) + (32 + 32))
    return training(model, torch.randn(7, 4, 16), torch.randint(0, 10, (7, 4)), optimizer), 3 * lstm


@pytest.fixture(scope="module", params=[transformer, convolutional, recurrent], ids=lambda f: f.__name__)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Profile, float]]:
    from torch.utils.flop_counter import FlopCounterMode

    torch.manual_seed(0)
    step, missed = request.param()
    step()
    with FlopCounterMode(display=False) as counter:
        step()
    yield profiled(step, tmp_path_factory.mktemp("trace") / "trace.json"), counter.get_total_flops() + missed


def test_total_flops_are_flop_counters_and_what_it_misses(run: tuple[Profile, float]) -> None:
    found, expected = run
    assert model_flops(assign(found.names, found.parents, found.rows).works) == expected


def test_hardly_any_time_is_without_a_price(run: tuple[Profile, float]) -> None:
    found, _ = run
    works = assign(found.names, found.parents, found.rows).works
    time_of: dict[str, float] = {}
    for name, work, own in zip(found.names, works, found.own, strict=True):
        if work is None:
            time_of[name] = time_of.get(name, 0.0) + own
    assert sum(time_of.values()) <= 0.02 * sum(found.own), time_of


def test_every_byte_is_counted_once(run: tuple[Profile, float]) -> None:
    """Nothing inside an op that owns its work, and no wrapper above it, has work of its own."""
    found, _ = run
    works = assign(found.names, found.parents, found.rows).works
    owner = assign(found.names, found.parents, found.rows).owners
    for i, work in enumerate(works):
        above = found.parents[i]
        while above >= 0 and work is not None and work.bytes:
            assert not works[above] or not works[above].bytes or works[above].kind == "view", found.names[above]
            above = found.parents[above]
        if owner[i] != i:
            assert work is not None and work.bytes == 0


def test_the_update_is_priced_with_each_kind_of_optimizer(tmp_path: Path) -> None:
    """Loop and foreach as their tensor ops; fused over more than 30 tensors by what the optimizer updates."""
    parameters = [torch.nn.Parameter(torch.randn(50, 20)) for _ in range(40)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    for kind in ("fused", "foreach", "loop"):
        optimizer = torch.optim.AdamW(parameters, fused=kind == "fused", foreach=kind == "foreach")
        optimizer.step()
        found = profiled(optimizer.step, tmp_path / f"{kind}.json")
        fused = assign(found.names, found.parents, found.rows).works
        known = assign(found.names, found.parents, found.rows, {"AdamW": 40_000}).works
        total = sum(w.bytes for w in known if w is not None)
        assert (None in fused) == (kind == "fused")
        assert None not in known
        # fused reads four and writes three; the loop reads and writes the same tensors again in every op
        assert total >= 7 * 4 * 40_000 * (1 if kind == "fused" else 1.5)
        assert total <= 7 * 4 * 40_000 * (1.01 if kind == "fused" else 5)


@pytest.mark.filterwarnings("ignore")
def test_indexing_and_packed_weights_are_priced_by_what_happens_inside(tmp_path: Path) -> None:
    x, rows = torch.randn(50, 60), torch.tensor([1, 2, 3, 4, 5, 6, 7])
    layer = torch.nn.Sequential(torch.nn.Linear(8, 16))
    packed = torch.ao.quantization.quantize_dynamic(layer, {torch.nn.Linear}, dtype=torch.qint8)

    def step() -> None:
        x[rows]
        x[rows] = 0.0
        packed(torch.zeros(4, 8))

    step()
    found = profiled(step, tmp_path / "trace.json")
    works = dict(zip(found.names, assign(found.names, found.parents, found.rows).works, strict=True))
    assert works["aten::index"].bytes == 2 * 4 * 420
    assert works["aten::_index_put_impl_"].bytes == 4 * 421
    assert works["aten::index_put_"].bytes == 0
    assert works["quantized::linear_dynamic"].flops == 2 * 4 * 8 * 16


def test_composite_ops_are_those_of_torch() -> None:
    """Every op that torch 2.13 implements only through others is a wrapper here, and none that has a kernel is."""
    kernels: dict[str, bool] = {}
    for full in torch._C._dispatch_get_all_op_names():
        if full.startswith("aten::"):
            name = full.removeprefix("aten::").split(".")[0]
            composite = torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd")
            kernels[name] = kernels.get(name, True) and composite
    composites = {n for n, alone in kernels.items() if alone and not n.startswith(("_test", "sym_"))}
    missing = {n for n in composites if not is_wrapper(f"aten::{n}")}
    assert len(missing) <= 0.05 * len(composites), missing
    wrong = {n for n in COMPOSITE if n in kernels and not kernels[n] and f"{n}_" not in composites}
    assert len(wrong) <= 0.05 * len(COMPOSITE), wrong


def test_the_recorder_of_the_opinfo_test_writes_what_the_profiler_writes(tmp_path: Path) -> None:
    """The calls that the database is priced with look like the calls of a trace."""
    from tests.ledger.ops.recorder import Recorder

    x, w = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    lists = [torch.randn(3), torch.randn(4)]

    def step() -> None:
        torch.addmm(torch.zeros(5), torch.zeros(3, 4), torch.zeros(4, 5))
        torch.conv2d(x, w, padding=1)
        torch.cat(lists)
        torch.sum(x, dim=(1, 2), keepdim=True)
        torch.topk(x, 2)
        x.to(torch.bfloat16)
        torch.max_pool2d(x, 2)

    seen: dict[str, Any] = {}
    with Recorder(lambda call, *rest: seen.setdefault(call.name, call)):
        step()
    found = profiled(step, tmp_path / "trace.json")
    recorded = dict(reversed(list(zip(found.names, found.rows, strict=True))))
    compared = ("addmm", "convolution", "cat", "sum", "topk", "_to_copy", "max_pool2d_with_indices")
    for name in (f"aten::{n}" for n in compared):
        row, call = recorded[name], seen[name]
        assert row is not None
        assert (row.shapes, row.dtypes[: len(call.dtypes)]) == (call.shapes, call.dtypes), name
        assert work_of(name, *row) == work_of(*call), name
