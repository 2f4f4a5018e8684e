"""What experiments compute, against something that they did not: float64, a hand formula, an exact count."""

from __future__ import annotations

import itertools
import math
import queue
import threading

import pytest
import torch

from gobrrr.errors import GobrrrError
from gobrrr.lab import branches, load
from gobrrr.lab.bench import Bench
from gobrrr.lab.experiments import (
    all_reduce,
    attention,
    distillation,
    folded_norm,
    latency_budget,
    number_formats,
    strassen,
    three_derivatives,
    waves,
)
from gobrrr.lab.model import Found
from tests.unit.handmade import machine

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
