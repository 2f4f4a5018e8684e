"""What experiments compute, against something that they did not: float64, a hand formula, an exact count."""

from __future__ import annotations

import copy
import itertools
import math
import queue
import threading
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from gobrrr.errors import GobrrrError
from gobrrr_lab import load
from gobrrr_lab.experiments.cost import all_reduce
from gobrrr_lab.experiments.derivatives import forward_and_reverse, three_derivatives
from gobrrr_lab.experiments.formats import int8_layers, number_formats
from gobrrr_lab.experiments.kernels import attention, folded_norm, layer_norm, optimizers
from gobrrr_lab.experiments.products import strassen, waves
from gobrrr_lab.experiments.smaller import distillation, key_value_cache, latency_budget
from gobrrr_lab.experiments.time import fused_pointwise
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.needs import lacking
from gobrrr_lab.measure.result import Found
from gobrrr_lab.nets import blocks, branches, decoder, int8, lltm
from tests.support.handmade import machine

EXPERIMENTS = load()


def tiny(name: str) -> Found:
    return EXPERIMENTS[name].measure(Bench(machine(), 0.0, tiny=True))


def test_strassens_seven_products_are_the_product() -> None:
    a, b = torch.randn(2, 32, 32, dtype=torch.float64).unbind()
    assert torch.allclose(strassen.strassen(a, b), a @ b, atol=1e-12)


@pytest.mark.parametrize(
    ("size", "share"),
    [(1280, 100 / 108), (1408, 121 / 216), (128, 1 / 108), (64, 0.25 / 108), (1330, (1330 / 1408) ** 2 * 121 / 216)],
)
def test_waves_by_hand(size: int, share: float) -> None:
    assert waves.efficiency(size) == pytest.approx(share)


@pytest.mark.parametrize("length", [1, 127, 128, 129, 400])
def test_tiles_give_the_attention_of_all_scores(length: int) -> None:
    q, k, v = 30 * torch.randn(3, 1, 2, length, attention.WIDTH, dtype=torch.float64)  # scores far apart
    assert torch.allclose(attention.tiled(q, k, v), attention.naive(q, k, v), atol=1e-9)


def test_a_folded_norm_is_both_layers() -> None:
    layer, norm = torch.nn.Conv2d(3, 5, 3).double(), torch.nn.BatchNorm2d(5).double().eval()
    with torch.no_grad():
        norm.running_mean.uniform_(), norm.running_var.uniform_(0.1, 3), norm.weight.uniform_(), norm.bias.uniform_()
        x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
        assert torch.allclose(folded_norm.folded(torch, layer, norm)(x), norm(layer(x)), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "stuck"), [("float32", 2**24), ("bfloat16", 256), ("float16", 2048), ("float8_e5m2", 8)]
)
def test_where_counting_ends(name: str, stuck: int) -> None:
    assert number_formats._stuck(torch, getattr(torch, name)) == stuck


def test_counts_are_exact() -> None:
    assert tiny("counted_flops").factor.value == 1.0
    assert tiny("bytes_per_parameter").factor.value == 16.0
    assert tiny("gradient_descent").factor.value <= 1.2
    found = {row.label: row.measured.value for row in tiny("padding_ladder").rows}
    assert found["to the cap"] < found["in collate"] < found["buckets"] < found["packed"] <= 100


def test_derivatives_by_hand_are_those_of_a_complex_step() -> None:
    x, step = torch.linspace(-1, 2, 7, dtype=torch.float64), 1e-30
    aside = torch.complex(x, torch.full_like(x, step))
    lower = (three_derivatives.function(aside), *three_derivatives.slopes(aside)[:2])
    for ours, below in zip(three_derivatives.slopes(x), lower, strict=True):
        assert torch.allclose(ours, below.imag / step, rtol=1e-13, atol=0)


def test_the_best_step_is_where_the_two_errors_are_least() -> None:
    at, eps = torch.tensor(1.3, dtype=torch.float64), 2.0**-52
    for order in (1, 2):
        best = three_derivatives.best_step(1.3, eps, order)
        errors = [three_derivatives._predicted(at, best * share, eps, order) for share in (0.8, 1.0, 1.25)]
        assert min(errors) == errors[1]


def test_differences_err_as_the_series_says() -> None:
    found = tiny("three_derivatives")
    larger = [
        row for row in found.rows if row.series.endswith("float64") and row.x and row.x > 1e-5
    ]  # rounding is nothing
    assert len(larger) == 6
    for row in larger:
        assert row.predicted is not None and row.measured.value == pytest.approx(row.predicted, rel=0.05)


def test_what_differs_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "tiled", lambda q, k, v: 0 * q)
    with pytest.raises(GobrrrError, match="differ"):
        tiny("attention")


def test_a_latency_error_is_absolute() -> None:
    assert latency_budget.EXPERIMENT.reproduced[0] == 0 and math.isfinite(tiny("latency_budget").factor.value)


@pytest.mark.parametrize("way", ["ring", "butterfly"])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_each_all_reduce_sums_and_sends_what_its_formula_says(way: str, ranks: int) -> None:
    """Ranks as threads, their messages in queues, each counted."""
    posts: dict[tuple[int, int], queue.Queue[torch.Tensor]] = {
        pair: queue.Queue() for pair in itertools.product(range(ranks), repeat=2)
    }
    sent: list[list[int]] = [[] for _ in range(ranks)]
    given = torch.randint(0, 100, (ranks, 16), generator=torch.Generator().manual_seed(0)).double()
    numbers = given.clone()

    def work(rank: int) -> None:
        def swap(x: torch.Tensor, to: int, by: int) -> torch.Tensor:
            sent[rank].append(x.numel() * x.element_size())
            posts[rank, to].put(x.clone())
            return posts[by, rank].get(timeout=10)

        all_reduce.WAYS[way](numbers[rank], rank, ranks, swap)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert torch.equal(numbers, given.sum(0).expand(ranks, -1))
    assert {(len(each), float(sum(each))) for each in sent} == {all_reduce.costs(way, ranks, 8.0 * 16)}


def test_both_arms_of_distillation_begin_with_the_same_weights_and_see_the_same_points() -> None:
    bench, seen = Bench(machine(), 0.0, tiny=True), []

    def loss(out: torch.Tensor) -> torch.Tensor:
        seen.append(out.detach().clone())
        return out.square().mean()

    x = torch.rand(5, 2)
    for width, given in ((8, loss), (64, loss), (8, lambda out: 2 * loss(out))):
        distillation.trained(bench, width, x, given, seed=3)
    steps = len(seen) // 3
    assert torch.equal(seen[0], seen[2 * steps]) and not torch.equal(seen[0], seen[steps])


def test_a_taught_loss_is_hintons() -> None:
    out, opinion = torch.randn(2, 4, 3, dtype=torch.float64).unbind()
    labels = torch.eye(3, dtype=torch.float64)[[0, 2, 1, 0]]
    soft, hard = (opinion / 3).exp(), -(labels * (out.exp() / out.exp().sum(1, keepdim=True)).log()).sum(1).mean()
    warm = (out / 3).exp()
    cross = -(soft / soft.sum(1, keepdim=True) * (warm / warm.sum(1, keepdim=True)).log()).sum(1).mean()
    assert float(distillation.taught(torch, out, labels, opinion)) == pytest.approx(float(0.1 * hard + 0.9 * 9 * cross))


@pytest.mark.slow
def test_breaks_are_where_values_are_asked() -> None:
    x, kinds = torch.rand(8), branches.chains(torch)
    with torch.no_grad():
        counts = {name: branches.counted(torch, module, x) for name, module in kinds.items()}
        assert {name: breaks for name, (_, breaks) in counts.items()} == {
            "if": 3.0, "if in a loop": 0.0, "torch.cond": 0.0, "no branch": 0.0
        }  # fmt: skip
        assert [branches.refused(torch, kinds[name], x) for name in ("if", "torch.cond")] == [True, False]
        for sign in (1, -1):
            assert torch.equal(kinds["if"](sign * x), kinds["torch.cond"](sign * x))


def test_whole_numbers_of_a_weight_are_within_half_a_scale() -> None:
    weight = (
        torch.randn(6, 3, 3, 3, dtype=torch.float64)
        * torch.logspace(-3, 3, 6, dtype=torch.float64)[:, None, None, None]
    )
    low, scale = int8.quantised(torch, weight)
    found = low.double() * scale[:, None, None, None]
    assert low.dtype == torch.int8 and bool((low.flatten(1).abs().amax(1) == 127).all())
    assert bool(((found - weight).flatten(1).abs().amax(1) <= scale / 2 * (1 + 1e-12)).all())


@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_a_weight_only_net_is_that_of_its_rounded_weights(kind: str) -> None:
    net = int8_layers.nets(torch, 16)[kind].eval().double()
    x = torch.randn(3, 1, int8_layers.SIDE, int8_layers.SIDE, dtype=torch.float64)
    low, rounded = int8.weight_only(torch, net), copy.deepcopy(net)
    with torch.no_grad():
        for layer in rounded.modules():
            if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d)):
                whole, scale = int8.quantised(torch, layer.weight)
                layer.weight.copy_(whole.double() * scale.reshape(-1, *[1] * (whole.dim() - 1)))
        assert torch.allclose(low(x), rounded(x), atol=1e-12) and not torch.equal(net(x), rounded(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_a_static_net_is_the_plain_one_nearly_and_in_whole_numbers(kind: str) -> None:
    net = int8_layers.nets(torch, 64)[kind].eval()
    x = torch.randn(64, 1, int8_layers.SIDE, int8_layers.SIDE)
    try:
        low = int8.static(torch, net, x)
    except GobrrrError as error:
        pytest.skip(error.message)
    weights = [layer.weight() for layer in low.modules() if callable(getattr(layer, "weight", None))]
    assert weights and all(weight.dtype == torch.qint8 for weight in weights)
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in low.modules())
    with torch.no_grad():
        assert 0 < float((low(x) - net(x)).norm() / net(x).norm()) < 0.1


def test_a_bootstrap_of_right_answers_is_as_wide_as_the_binomial_says() -> None:
    right = (torch.arange(2000) % 5 != 0).double()
    found = int8_layers.bootstrapped(torch, right)
    assert found.value == 80 and found.high - found.low == pytest.approx(
        2 * 1.96 * 100 * (0.8 * 0.2 / 2000) ** 0.5, rel=0.1
    )


def test_a_token_costs_what_torchs_counter_says() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    net, x = decoder.Decoder(torch), torch.randn(1, 9, decoder.WIDTH)
    kept = net.read(x[:, :8])[1]
    for way, call in {"without": lambda: net.read(x), "with": lambda: net.read(x[:, 8:], kept)}.items():
        with FlopCounterMode(display=False) as counter:
            call()
        pairs = 9 * (
            9 if way == "without" else 1
        )  # attention has 4 per pair and channel; torch's counter has none on a CPU
        attention = 0 if "attention" in str(counter.get_flop_counts()) else 4 * decoder.LAYERS * decoder.WIDTH * pairs
        assert counter.get_total_flops() + attention == decoder.cost(way, 8)[0]
    held = sum(each.nbytes for pair in kept for each in pair) + sum(w.nbytes for layer in net._layers for w in layer)
    assert decoder.cost("with", 8)[1] == held
    assert torch.allclose(net.anew(x), net.cached(x), atol=1e-5)


def test_a_slope_is_the_power() -> None:
    assert key_value_cache.slope({n: 3.0 * n**1.7 for n in (64, 128, 512)}) == pytest.approx(1.7)


def _cell_in_double() -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """What the cell is given, and its state and gradients by central differences of a plain formula in NumPy."""
    draw = torch.Generator().manual_seed(0)
    shapes = {"x": (2, 3), "h": (2, 4), "c": (2, 4), "weight": (12, 7), "bias": (12,)}
    given = {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}

    def total(values: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, float]:
        z = np.concatenate((values["h"], values["x"]), 1) @ values["weight"].T + values["bias"]
        u, o, g = 1 / (1 + np.exp(-z[:, :4])), 1 / (1 + np.exp(-z[:, 4:8])), z[:, 8:]
        c = values["c"] + np.where(g > 0, g, np.expm1(g)) * u
        h = np.tanh(c) * o
        return h, c, float(2 * h.sum() + 3 * c.sum())

    plain = {name: value.numpy().copy() for name, value in given.items()}
    found = [torch.tensor(each) for each in total(plain)[:2]]
    for value in plain.values():
        slopes = np.empty_like(value)
        for at in np.ndindex(value.shape):
            sums = []
            for step in (1e-6, -2e-6):
                value[at] += step
                sums.append(total(plain)[2])
            value[at] += 1e-6
            slopes[at] = (sums[0] - sums[1]) / 2e-6
        found.append(torch.tensor(slopes))
    return given, found


def _held_against_the_formula(cell: lltm.Cell, dtype: torch.dtype, atol: float, device: str = "cpu") -> None:
    given, expected = _cell_in_double()
    leaves = [value.to(device, dtype).requires_grad_() for value in given.values()]
    h, c = cell(*leaves)
    slopes = torch.autograd.grad(2 * h.sum() + 3 * c.sum(), leaves)
    for ours, theirs in zip((h, c, *slopes), expected, strict=True):
        assert torch.allclose(ours.double().cpu(), theirs, atol=atol)


def test_the_cell_by_ops_is_the_formula() -> None:
    _held_against_the_formula(lltm.by_ops, torch.float64, 1e-7)


@pytest.mark.slow
def test_the_cell_in_cpp_is_the_formula(tmp_path: Path) -> None:
    if missing := lacking(EXPERIMENTS["lstm_like_cell"]):
        pytest.skip(missing)
    _held_against_the_formula(lltm.by_cpp(str(tmp_path)), torch.float64, 1e-7)


def test_the_cell_in_triton_is_the_formula() -> None:
    if find_spec("triton") is None:
        pytest.skip("no triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"  # Triton's interpreter is for the CPU
    _held_against_the_formula(lltm.by_triton(), torch.float32, 1e-4, device)


def test_forward_and_reverse_cross_where_inputs_and_outputs_are_as_many() -> None:
    bench = Bench(machine(), 0.0)
    assert forward_and_reverse.predicted(bench, 100, 100) == 1.0
    wide, tall = forward_and_reverse.predicted(bench, 100_000, 100), forward_and_reverse.predicted(bench, 100, 100_000)
    assert wide == pytest.approx(1000, rel=0.05) and tall == pytest.approx(1 / 1000, rel=0.05)  # no call counts there
    powers = [(x, 3.0 * x**1.5) for x in (100.0, 1.0, 0.5, 0.1)]
    assert forward_and_reverse.crossed(powers) == pytest.approx(3 ** (-1 / 1.5))
    assert forward_and_reverse.crossed([(2.0, 3.0), (1.0, 1.0), (0.5, 0.2)]) == pytest.approx(1.0)
    assert forward_and_reverse.crossed([(x, 2.0) for x in (1.0, 2.0)]) is None


def test_tf32_rounds_to_the_nearest_of_eleven_bits_and_to_even_between_two() -> None:
    x = torch.cat((torch.randn(10_000), torch.tensor([1 + 2.0**-11, 1 + 3 * 2.0**-11, 2049.0, 2051.0, 0.0])))
    fraction, exponent = np.frexp(x.double().numpy())
    expected = np.ldexp(np.rint(fraction * 2**11), exponent - 11)  # rint is to even
    assert np.array_equal(number_formats._rounded(torch, x, None).double().numpy(), expected)


class Shared(torch.nn.Module):
    """A layer whose output goes to a norm and elsewhere, and one that is called twice: neither may be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.shown, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.one, self.two, self.three = (torch.nn.BatchNorm1d(4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one(self.twice(self.twice(x)))
        shown = self.shown(x)
        return self.three(self.last(self.two(shown) + shown))


@pytest.mark.parametrize(("which", "left"), [("ResNet", 0), ("shared", 2)])
def test_folding_by_fx_changes_no_result_and_folds_only_what_it_may(which: str, left: int) -> None:
    net = (blocks.residual_net(torch, 4) if which == "ResNet" else Shared()).double().eval()
    for norm in (each for each in net.modules() if isinstance(each, (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d))):
        for value in (norm.running_mean, norm.running_var, norm.weight.data, norm.bias.data):
            value.uniform_(0.5, 2)
    x = torch.rand(2, 3, 8, 8, dtype=torch.float64) if which == "ResNet" else torch.rand(5, 4, dtype=torch.float64)
    short = folded_norm.fused(torch, net)
    kept = sum(isinstance(each, (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)) for each in short.modules())
    with torch.no_grad():
        assert torch.allclose(short(x), net(x), atol=1e-12) and kept == left
        assert float((net(x)[0] - net(x)[1]).abs().max()) > 1e-3  # no dead net, which any fold agrees with


def test_a_cut_spectrum_errs_by_what_was_cut() -> None:
    weight = torch.randn(40, 40, dtype=torch.float64)
    u, s, v = torch.linalg.svd(weight)
    assert float((weight - u[:, :7] * s[:7] @ v[:7]).norm()) == pytest.approx(float(s[7:].norm()))  # Eckart and Young
    rows = [row for row in tiny("low_rank").rows if "spectrum" in row.label]
    assert len(rows) == 4 and all(row.measured.value == pytest.approx(row.predicted, rel=1e-3) for row in rows)
    assert rows[-1].predicted == pytest.approx(100 * ((256 - 64) / 256) ** 0.5)  # a flat one loses its share


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_adam_by_hand_is_torchs(weight: float) -> None:
    ours, theirs = ([torch.full((5,), weight, dtype=torch.float64).requires_grad_()] for _ in range(2))
    hand, adam = optimizers.ByHand(torch, ours), torch.optim.Adam(theirs)
    for step in range(20):
        for one in (*ours, *theirs):
            one.grad = torch.sin(torch.arange(5.0, dtype=torch.float64) + step)
        hand.step(), adam.step()
    assert torch.allclose(ours[0], theirs[0], rtol=0, atol=1e-13) and float((ours[0] - weight).abs().min()) > 1e-4


def test_welford_is_the_variance_and_cancels_nothing() -> None:
    x = torch.randn(7, 50, dtype=torch.float64)
    exact = torch.tensor(np.var(x.numpy(), axis=1))
    assert torch.allclose(layer_norm.welford(torch, x), exact, atol=1e-12)
    assert torch.allclose(layer_norm.welford(torch, x + 1e6), exact, rtol=1e-7)
    shifted = x + 1e6
    assert not torch.allclose((shifted**2).mean(1) - shifted.mean(1) ** 2, exact, rtol=1e-5)


def test_the_rearranged_backward_is_a_gradient() -> None:
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer_norm.rearranged(torch), (x,), eps=1e-6, atol=1e-6)


def test_tiles_move_fewer_bytes_and_hold_a_strip_of_scores() -> None:
    for length in (256, 2048):
        (moved, held), (tiled_moved, tiled_held) = (attention.num_bytes(length, tiles) for tiles in (False, True))
        assert held / tiled_held == length / attention.TILE and moved > tiled_moved
    whole = attention.num_bytes(2048, False)[0]
    assert whole / 4 / attention.HEADS == 4 * 2048 * 64 + 6 * 2048**2


@pytest.mark.slow
def test_the_kernel_by_hand_is_two_cosines(tmp_path: Path) -> None:
    if missing := lacking(EXPERIMENTS["fused_pointwise"]):
        pytest.skip(missing)
    x = torch.linspace(-20, 20, 10_001)
    found = fused_pointwise.by_hand(torch, str(tmp_path))(x)
    assert np.allclose(found.numpy(), np.cos(np.cos(x.double().numpy())), atol=1e-6)
    assert float(torch.tensor(1e-39) * 1.0) > 0  # what was loaded flushes no denormals


def test_a_compiler_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(GobrrrError, match="was not built"):
        fused_pointwise.by_hand(torch, str(tmp_path))


def test_what_is_kept_under_a_selective_policy_is_inputs_and_hidden_states() -> None:
    kept = {row.label: row.measured.value for row in tiny("checkpointing").rows if row.unit == "B"}
    hidden = 4.0 * 2 * 4 * (4 * 8)  # two blocks, four rows, four times the width of 8
    assert kept["kept, all but products again"] == kept["kept, every block again"] + hidden
