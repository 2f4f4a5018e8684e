"""Work per op against PyTorch's own OpInfo database: every sample's forward and backward, op by op.

Slow: ../test_work_recorded.py asks the same of a recording, in a second.

Three claims. FLOPs equal those of torch.utils.flop_counter wherever it knows the op. Bytes equal what the op's tensors
stand for, addresses enumerated, but for listed classes of ops with the reason. And every op is priced, a view, or on
the list of what is not counted, with a floor under the coverage.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="the OpInfo database imports it")

from gobrrr.ledger.work import Work, work_of  # noqa: E402
from tests.ledger.ops.agreement import AT_MOST, BYTES_OF_INFO, agrees, really_read  # noqa: E402
from tests.ledger.ops.recorder import Recorded, Recorder, Traffic, traffic  # noqa: E402

# Ops that appear in the database and are not modelled; anything else that is not priced is a failure.
NOT_COUNTED = {
    "aten::linalg_pinv": "made of other ops; as a call of its own only under a dispatch mode",
    "aten::_trilinear": "made of mul and sum",
    "aten::diagonal_copy": "functionalised views, only in compiled graphs",
    "aten::unfold_copy": "functionalised views, only in compiled graphs",
    "aten::_sparse_mm_reduce_impl": "sparse: the number of non-zeros is not recorded",
    "aten::_sparse_mm_reduce_impl_backward": "sparse",
    "aten::_to_sparse": "sparse",
    "aten::_to_sparse_csr": "sparse",
    "aten::sparse_mask": "sparse",
    "aten::index_put_": "one value spread over indices that were not recorded (torch records a view inside)",
    "aten::_unsafe_index": "the indices are not recorded",
    "aten::arange": "bounds given as booleans",
    "torch_nn::_linear_cross_entropy_batch_chunked": "made of other ops",
    "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction": "made of other ops",
}


class Tally:
    """What was seen over the database."""

    def __init__(self) -> None:
        self.calls, self.priced, self.samples, self.whole_samples = 0, 0, 0, 0
        self.names: set[str] = set()
        self.uncounted: Counter[str] = Counter()
        self.flops: list[tuple[str, float, float]] = []
        self.bytes: dict[str, list[tuple[float, Traffic, Recorded]]] = defaultdict(list)
        self.broken: list[tuple[Recorded, str]] = []
        self.whole = True

    def seen(self, call: Recorded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """One dispatched call. What goes wrong here must not pass for an op that does not run on this machine."""
        try:
            self.count(call, func, args, kwargs, result)
        except Exception as error:
            self.broken.append((call, repr(error)))

    def count(self, call: Recorded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Price it and keep what the tests compare."""
        inner = (tuple(result.shape),) if call.name == "aten::index" else ()  # torch records a view of this size
        work = work_of(*call, inner=inner)
        self.calls += 1
        self.names.add(call.name)
        if work is None:
            self.uncounted[call.name] += 1
            self.whole = False
            return
        self.priced += 1
        expected = flop_counter(call, func, args, kwargs, result)
        if expected is not None:
            self.flops.append((call.name, work.flops, expected))
        if work.kind != "view":
            self.bytes[call.name.removeprefix("aten::")].append((work.bytes, traffic(func, args, kwargs, result), call))


def flop_counter(call: Recorded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> float | None:
    """What torch.utils.flop_counter says; None where it does not know the op.

    Two corrections: it counts a complex multiply-add as two FLOPs where it is eight, and the gradient of the weight of
    a grouped convolution `groups` times too high (it pairs every input channel with every output channel).
    """
    from torch.utils.flop_counter import conv_backward_flop, flop_registry, sdpa_backward_flop_count, sdpa_flop_count

    if call.name == "aten::_scaled_dot_product_flash_attention_for_cpu":
        return float(sdpa_flop_count(*(v.shape for v in args[:3])))
    if call.name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward":
        return float(sdpa_backward_flop_count(*(v.shape for v in args[:4])))
    found = flop_registry.get(func._overloadpacket)
    if found is None:
        return None
    if call.name == "aten::convolution_backward" and (groups := args[9]) > 1:
        shapes = [list(v.shape) for v in args[:3]]
        for shape, axis in zip(shapes, (1, 1, 0), strict=True):
            shape[axis] //= groups
        grads = (torch.empty(shapes[1], device="meta"), torch.empty(shapes[2], device="meta"), None)
        inputs = [torch.empty(shape, device="meta") for shape in shapes]
        return float(groups * conv_backward_flop(*inputs, *args[3:9], 1, args[10], out_val=grads))
    scale = 4 if call.dtypes[0].startswith("c10::complex") else 1
    return float(scale * found(*args, **kwargs, out_val=result))


def differentiate(result: Any) -> None:
    """Backward through everything that carries a gradient."""
    outs = [t for t in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(t, torch.Tensor)]
    outs = [t for t in outs if t.requires_grad]
    if outs:
        sum(t.sum().abs() for t in outs).backward()


def walk(tally: Tally) -> Tally:
    """Every sample of every op, forward and backward."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        for sample in samples(op):
            tally.whole = True
            with Recorder(tally.seen):
                try:
                    differentiate(op(sample.input, *sample.args, **sample.kwargs))
                except Exception:
                    continue  # needs a device or takes no gradient; what ran before is tallied
            tally.samples += 1
            tally.whole_samples += tally.whole
    return tally


def samples(op: Any) -> Iterator[Any]:
    """The op's float32 samples; none where it has none on a CPU."""
    try:
        yield from op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    except (RuntimeError, ValueError, NotImplementedError, AttributeError):
        return


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        # Seeding for each sample queues a formatted stack for devices that may come: two thirds of the whole time.
        for device in ("cuda", "xpu", "mtia"):
            patch.setattr(f"torch.{device}.manual_seed_all", lambda seed: None)
        found = walk(Tally())
    torch.set_num_threads(threads)
    yield found


@pytest.mark.slow
def test_flops_are_those_of_flop_counter(tally: Tally) -> None:
    assert not tally.broken, tally.broken[:3]
    wrong = [row for row in tally.flops if row[1] != row[2]]
    assert not wrong, wrong[:5]
    known = Counter(name for name, _, _ in tally.flops)
    for name in ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"):
        assert known[f"aten::{name}"], f"the database no longer reaches {name}"
    assert known["aten::_scaled_dot_product_flash_attention_for_cpu_backward"]


@pytest.mark.slow
def test_bytes_are_those_behind_the_tensors(tally: Tally) -> None:
    wrong = [
        (name, got, really_read(name, held.reads), held.writes, call)
        for name, rows in tally.bytes.items()
        for got, held, call in rows
        if not agrees(name, got, held.reads, held.writes)
    ]
    assert not wrong, (Counter(row[0] for row in wrong), *(str(row)[:300] for row in wrong[:4]))


@pytest.mark.slow
def test_every_op_is_priced_or_listed(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    unlisted = {name: count for name, count in tally.uncounted.items() if name not in NOT_COUNTED}
    ops = 1 - len(tally.uncounted) / len(tally.names)
    calls, whole = tally.priced / tally.calls, tally.whole_samples / tally.samples
    with capsys.disabled():
        print(
            f"\nOpInfo: {len(tally.names)} ops, {100 * ops:.1f} % always priced; {tally.calls} calls, "
            f"{100 * calls:.2f} % priced; {tally.samples} samples, {100 * whole:.2f} % priced throughout"
        )
    assert not unlisted
    assert tally.samples > 1000
    assert ops >= 0.97
    assert calls >= 0.997
    assert whole >= 0.98


@pytest.mark.slow
def test_nothing_is_negative_or_free_by_mistake(tally: Tally) -> None:
    """An op that is not a view and has tensors to write does not come out as zero bytes."""
    free = [
        (name, call)
        for name, rows in tally.bytes.items()
        for got, held, call in rows
        if got == 0 and held.writes > BYTES_OF_INFO and sum(held.reads.values()) and name not in AT_MOST
    ]
    assert not free, free[:3]


def test_unknown_is_none_and_never_zero() -> None:
    assert work_of("mylib::fused_thing", ((4, 4),), ("float",), ("",)) is None
    assert isinstance(work_of("aten::view", ((4, 4),), ("float",), ("",)), Work)
