"""Attention written by hand in the ways that people write it becomes one call with the same numbers, or stays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from gobrrr.remedies.layers.attention_pattern import replace  # noqa: E402

B, H, L, D = 2, 3, 12, 8
Function = Callable[..., Any]


def captured(function: Function, *inputs: Any) -> tuple[int, list[str], Any]:
    """How many were replaced, the names of the calls that are left, and what comes out."""
    seen: dict[str, Any] = {"count": 0, "calls": []}

    def backend(graph: Any, _: Any) -> Any:
        seen["count"] += replace(graph)
        seen["calls"] += [getattr(n.target, "__name__", str(n.target)) for n in graph.graph.nodes]
        seen["causal"] = [n.kwargs["is_causal"] for n in graph.graph.nodes if "is_causal" in n.kwargs]
        return graph.forward

    torch._dynamo.reset()
    result = torch.compile(function, backend=backend)(*inputs)
    return seen["count"], seen["calls"], (result, seen.get("causal"))


def plain(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(D), dim=-1) @ v


def scaled_before(q: Any, k: Any, v: Any) -> Any:
    return torch.matmul((torch.matmul(q * D**-0.5, k.mT)).softmax(-1), v)


def unscaled(q: Any, k: Any, v: Any) -> Any:
    return F.softmax(q.matmul(k.mT), -1).matmul(v)


def causal(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-2, -1) * D**-0.5
    scores = scores.masked_fill(torch.tril(torch.ones(L, L)) == 0, float("-inf"))
    return F.softmax(scores, dim=-1) @ v


def causal_in_place(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-2, -1)
    scores /= math.sqrt(D)
    future = torch.ones(L, L, dtype=torch.bool).triu(1)
    return scores.masked_fill_(future[None, None], -1e9).softmax(-1) @ v


def windowed(q: Any, k: Any, v: Any) -> Any:
    near = torch.ones(L, L, dtype=torch.bool).tril() & torch.ones(L, L, dtype=torch.bool).triu(-3)
    return F.softmax((q @ k.mT).masked_fill(~near, float("-inf")), dim=-1) @ v


def padded(q: Any, k: Any, v: Any, lengths: Any) -> Any:
    outside = torch.arange(L)[None, None, None] >= lengths[:, None, None, None]
    return F.softmax((q @ k.mT / 3.0).masked_fill(outside, -1e9), dim=-1) @ v


def biased(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return F.softmax(q @ k.mT * 0.5 + bias, dim=-1) @ v


def dropped_in_evaluation(q: Any, k: Any, v: Any) -> Any:
    return F.dropout(F.softmax(q @ k.mT, dim=-1), 0.3, training=False) @ v


REPLACED = [plain, scaled_before, unscaled, causal, causal_in_place, windowed, dropped_in_evaluation]


@pytest.mark.parametrize("function", REPLACED)
@pytest.mark.parametrize("dims", [3, 4])
def test_the_same_numbers_from_one_call(function: Function, dims: int) -> None:
    torch.manual_seed(0)
    shape = (B, H, L, D) if dims == 4 else (B, L, D)
    if dims == 3 and function is causal_in_place:
        pytest.skip("its mask has four dimensions")
    q, k, v = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3))
    want = function(q, k, v)
    count, calls, (found, is_causal) = captured(function, q, k, v)
    assert count == 1 and "scaled_dot_product_attention" in calls and "softmax" not in calls
    assert is_causal == [function in (causal, causal_in_place)]
    assert found.shape == want.shape
    torch.testing.assert_close(found, want)
    for a, b in zip(
        torch.autograd.grad(want.square().sum(), (q, k, v)), torch.autograd.grad(found.square().sum(), (q, k, v)),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("function", "extra"),
    [(padded, torch.tensor([5, 0])), (biased, torch.randn(H, L, L, dtype=torch.float64))],
)
def test_masks_and_biases_that_are_given_are_kept(function: Function, extra: Any) -> None:
    """A row in which everything is masked by a large number is the mean of all values, and stays so."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, H, L, D, dtype=torch.float64) for _ in range(3))
    count, _, (found, _) = captured(function, q, k, v, extra)
    assert count == 1
    torch.testing.assert_close(found, function(q, k, v, extra))


def weights_are_used(q: Any, k: Any, v: Any) -> Any:
    weights = F.softmax(q @ k.mT, dim=-1)
    return weights @ v, weights


def scores_are_used(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT
    return F.softmax(scores, dim=-1) @ v, scores.max()


def over_queries(q: Any, k: Any, v: Any) -> Any:
    return F.softmax(q @ k.mT, dim=-2) @ v


def scaled_after_the_mask(q: Any, k: Any, v: Any) -> Any:
    return F.softmax((q @ k.mT + torch.ones(L, L).triu(1).double()) * 0.5, dim=-1) @ v


def from_the_left(q: Any, k: Any, v: Any) -> Any:
    return v.mT @ F.softmax(q @ k.mT, dim=-1)


def masked_mildly(q: Any, k: Any, v: Any) -> Any:
    return F.softmax((q @ k.mT).masked_fill(torch.ones(L, L).triu(1) > 0, -2.0), dim=-1) @ v


def masked_twice(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.mT).masked_fill(torch.ones(L, L).triu(1) > 0, float("-inf"))
    return F.softmax(scores.masked_fill(torch.ones(L, L).tril(-4) > 0, float("-inf")), dim=-1) @ v


def masked_by_a_statement(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT
    scores.masked_fill_(torch.ones(L, L).triu(1) > 0, float("-inf"))
    return F.softmax(scores, dim=-1) @ v


def softer_than_half(q: Any, k: Any, v: Any) -> Any:
    return F.softmax(q @ k.mT, dim=-1, dtype=torch.float32).double() @ v


LEFT = [
    weights_are_used, scores_are_used, over_queries, scaled_after_the_mask, from_the_left, masked_mildly, masked_twice,
    softer_than_half, masked_by_a_statement,
]  # fmt: skip


@pytest.mark.parametrize("function", LEFT)
def test_what_does_not_fit_is_left_alone(function: Function) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, H, L, D, dtype=torch.float64) for _ in range(3))
    count, _, (found, _) = captured(function, q, k, v)
    assert count == 0
    torch.testing.assert_close(found, function(q, k, v))


def test_dropout_is_kept_at_its_rate() -> None:
    """The mean over many draws is that without dropout, and one draw is not."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(64, 4, L, D) for _ in range(3))
    v = torch.ones_like(v)

    def dropped(q: Any, k: Any, v: Any) -> Any:
        return F.dropout(F.softmax(q @ k.mT, dim=-1), 0.5, training=True) @ v

    count, _, (found, _) = captured(dropped, q, k, v)
    assert count == 1
    assert found.mean().item() == pytest.approx(1.0, abs=0.02) and found.std() > 0.1


class Block(nn.Module):
    """Attention in a module in which dynamo cannot stay in one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.steps = nn.Linear(D, 3 * D), []

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        self.steps.append(float(x.detach().sum()))  # a value is asked for
        return plain(q, k, v)


def test_a_model_that_breaks_the_graph_is_helped_all_the_same() -> None:
    from gobrrr.remedies.mechanism.applying import install
    from gobrrr.remedies.mechanism.seams import Seams

    model, x, said = Block(), torch.randn(B, L, D), {}
    want = model(x)
    seams = Seams(lambda name, detail: said.update({name: detail}))
    install(seams, ["sdpa_attention"])
    try:
        torch.testing.assert_close(model(x), want)
    finally:
        seams.remove()
    assert said == {"sdpa_attention": "Block, 1 times"} and model._compiled_call_impl is None
    assert len(model.steps) == 2
