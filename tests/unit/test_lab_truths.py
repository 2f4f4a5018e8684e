"""What experiments compute, against something that they did not: float64, a hand formula, an exact count."""

from __future__ import annotations

import math

import pytest
import torch

from gobrrr.errors import GobrrrError
from gobrrr.lab import load
from gobrrr.lab.bench import Bench
from gobrrr.lab.experiments import (
    attention,
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


def test_differences_err_as_the_series_says() -> None:
    for row in three_derivatives.measure(Bench(machine(), 0.0)).rows[:6]:  # larger steps, where rounding is nothing
        assert row.predicted is not None and row.measured.value == pytest.approx(row.predicted, rel=0.05)


def test_what_differs_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "tiled", lambda q, k, v: 0 * q)
    with pytest.raises(GobrrrError, match="differ"):
        tiny("attention")


def test_a_latency_error_is_absolute() -> None:
    assert latency_budget.EXPERIMENT.reproduced[0] == 0 and math.isfinite(tiny("latency_budget").factor.value)
