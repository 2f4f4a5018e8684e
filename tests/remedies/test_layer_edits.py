"""Edits of layers: what is written by hand becomes one call that gives the same, and what is used otherwise stays."""

from __future__ import annotations

from typing import Any

import pytest

from gobrrr.remedies.edits import catalogue
from tests.remedies.test_source_edits import planted
from tests.support.patching import patched

torch = pytest.importorskip("torch")

ATTENTION = """
import math

import torch
import torch.nn.functional as F


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.0)
        self.soft = torch.nn.Softmax(dim=-1)

    def forward(self, q, k, v, mask):
{body}
"""
WRITTEN = (
    "w = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1)\nreturn w @ v",
    "s = torch.matmul(q, k.transpose(2, 3)) * (1.0 / math.sqrt(8))\ns = s.masked_fill(mask == 0, -1e9)\n"
    "w = self.drop(s.softmax(-1))\nreturn torch.matmul(w, v)",
    "s = (q @ k.mT).masked_fill(~mask, float('-inf'))\nw = torch.softmax(s, -1)\n"
    "w = F.dropout(w, 0.0, self.training)\nout = w.to(q.dtype) @ v\nreturn out",
    "s = q.matmul(k.transpose(-1, -2))\ns = torch.where(mask, s / 3, -math.inf)\nreturn s.softmax(-1).matmul(v)",
    "s = q @ (k + k).transpose(-2, -1) / 8\nmask = mask & mask\ns = s.masked_fill(mask == False, -torch.inf)\n"
    "return self.soft(s) @ v",
    "kt = k.transpose(-2, -1)\nbias = torch.zeros(5, 5)\nreturn F.softmax((q @ kt) * 0.5 + bias, dim=-1) @ v",
)
OTHERWISE = (
    "w = F.softmax(q @ k.mT, dim=-1)\nreturn w @ v, w",
    "w = F.softmax(q @ k.mT, dim=-1)\nself.seen = w\nreturn w @ v",
    "w = F.softmax(q @ k.mT * 2 + mask + mask, dim=-1)\nreturn w @ v",
    "w = F.softmax(q @ k.mT, dim=-1) * mask\nreturn w @ v",
    "w = F.softmax(q.exp(), dim=-1)\nreturn w @ v",
    "return torch.tanh(q @ k.mT) @ v",
    "w = F.softmax(q @ k.mT, dim=1)\nreturn w @ v",
    "w = torch.softmax(q @ k.mT, -2)\nreturn w @ v",
    "w = (q @ k.mT).softmax(-1)\nif self.training:\n    w = w / 2\nreturn w @ v",
    "s = q @ k.mT\nq = q * 2\nw = s.softmax(-1)\nreturn w @ v",
    "s = q @ k.mT\ns += mask\nreturn s.softmax(-1) @ v",
    "s = (q @ k.mT + mask) / 8\nreturn s.softmax(-1) @ v",
    "s = (q @ k.mT).masked_fill(~mask, 0.0)\nreturn s.softmax(-1) @ v",
)


def attention(body: str, around: str = ATTENTION) -> str:
    return around.replace("{body}", "\n".join(f"        {line}" for line in body.splitlines()))


def edited(name: str, text: str, *lines: int) -> str:
    change = catalogue.edit(name).change
    assert change is not None
    return patched(text, [change], lines)


def made(text: str) -> Any:
    names: dict[str, Any] = {"__name__": "edited"}
    exec(compile(text, "edited.py", "exec", dont_inherit=True), names)
    return names["Attention"]()


@pytest.mark.parametrize("body", WRITTEN)
def test_attention_by_hand_becomes_one_call_that_gives_the_same(body: str) -> None:
    text = attention(body)
    after = edited("fused_attention", text)
    assert after.count("scaled_dot_product_attention(") == 1 and "softmax(" not in after.replace("torch.nn.Softmax", "")
    q, k, v = torch.randn(3, 2, 4, 5, 8).double()
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    torch.testing.assert_close(made(after)(q, k, v, mask), made(text)(q, k, v, mask), check_dtype=False)
    assert edited("fused_attention", after) == after


@pytest.mark.parametrize("body", OTHERWISE)
def test_scores_that_are_used_otherwise_stay(body: str) -> None:
    assert edited("fused_attention", attention(body)) == attention(body)


def test_the_planted_attention_trains_as_before() -> None:
    losses = []
    for names in planted("hand_made_attention", "fused_attention"):
        torch.manual_seed(0)
        model = next(kind for name, kind in names.items() if "Attention" in name)(16, 2, 8).double()
        x = torch.randn(2, 8, 16, dtype=torch.double, requires_grad=True)
        model(x).square().mean().backward()
        losses.append(x.grad)
    torch.testing.assert_close(*losses)


def test_the_planted_loss_is_computed_in_chunks_of_its_logits() -> None:
    found = []
    for names in planted("logits_for_every_frame", "chunked_loss"):
        model = names["UnitPredictor"](8)
        for parameter in model.parameters():
            torch.nn.init.uniform_(parameter, -0.1, 0.1, generator=torch.Generator().manual_seed(0))
        frames = torch.rand(2, 6, 80, generator=torch.Generator().manual_seed(1))
        torch.manual_seed(0)
        loss = model(frames, names["masked_labels"](2, 6))
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in model.parameters())])
    torch.testing.assert_close(*found)


LOSS = """
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 9)

    def forward(self, hidden, targets):
        logits = self.head(hidden)
        shifted = logits[:, :-1].contiguous()
        return F.cross_entropy(shifted.view(-1, 9), targets[:, 1:].reshape(-1), label_smoothing=0.1)
"""


def test_a_shifted_loss_is_computed_of_shifted_states() -> None:
    after = edited("chunked_loss", LOSS)
    assert "linear_cross_entropy(hidden[:, :-1].flatten(0, -2), self.head.weight" in after
    hidden, targets, found = torch.randn(2, 5, 4), torch.randint(0, 9, (2, 5)), []
    for text in (LOSS, after):
        torch.manual_seed(0)
        names: dict[str, Any] = {"__name__": "edited"}
        exec(compile(text, "edited.py", "exec", dont_inherit=True), names)
        found.append(names["Model"]()(hidden, targets))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("before, then", [
    ("return F", "self.seen = logits\n        return F"), ("self.head(hidden)", "self.head(hidden, 2)"),
    ("torch.nn.Linear(4, 9)", "Head(4, 9)"), ("[:, :-1]", "[..., :7]"), ("targets[:, 1:]", "targets[:, : len(logits)]"),
    ("        shifted", "        if targets is None:\n            logits = hidden\n        shifted"),
])  # fmt: skip
def test_logits_that_are_used_otherwise_stay(before: str, then: str) -> None:
    text = LOSS.replace(before, then)
    assert edited("chunked_loss", text) == text


NORM = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, width, eps=1e-3):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.wide, self.eps = nn.Parameter(torch.ones(1, width)), eps

    def forward(self, x):
{body}
"""
NORMS = (
    "mean = x.mean(-1, keepdim=True)\nvar = x.var(-1, keepdim=True, unbiased=False)\n"
    "return self.gain * (x - mean) / torch.sqrt(var + self.eps) + self.shift",
    "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.gain",
    "variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)\nx = x * torch.rsqrt(variance + self.eps)\n"
    "return self.gain * x.to(x.dtype)",
    "norm = torch.sqrt(torch.mean(x ** 2, dim=-1, keepdim=True) + 1e-3)\nreturn self.wide * (x / norm)",
    "mu = x.mean(dim=-1, keepdim=True)\nc = x - mu\nv = (c * c).mean(dim=-1, keepdim=True)\n"
    "return c * (v + self.eps).rsqrt() * self.gain + self.shift",
    "u = x.mean(-1, keepdim=True)\ns = (x - u).square().mean(-1, keepdim=True)\n"
    "x = (x - u) / (s + self.eps) ** 0.5\nreturn self.gain * x + self.shift",
    "var = x.var(-1, keepdim=True, correction=0)\nmean = torch.mean(x, -1, keepdim=True)\n"
    "return (x - mean) * (var + self.eps) ** -0.5 * self.wide",
)
NO_NORMS = (
    "std = x.std(-1, keepdim=True)\nreturn (x - x.mean(-1, keepdim=True)) / (std + self.eps)",
    "mean = x.mean(-1, keepdim=True)\nreturn (x - mean) / torch.sqrt(x.var(-1, keepdim=True) + self.eps)",
    "mean = x.mean(1, keepdim=True)\nvar = x.var(1, keepdim=True, unbiased=False)\n"
    "return (x - mean) / torch.sqrt(var + self.eps)",
    "mean = x.mean(-1, keepdim=True)\nself.seen = mean\nvar = x.var(-1, keepdim=True, unbiased=False)\n"
    "return (x - mean) / torch.sqrt(var + self.eps)",
    "mean = x.mean(-1, keepdim=True)\nvar = x.var(-1, keepdim=True, unbiased=False)\nx = x * 2\n"
    "return (x - mean) / torch.sqrt(var + self.eps)",
    "y = x * 2\nreturn x * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)",
    "return x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + self.eps)",
    "return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + self.eps)",
    "mean = x.mean(-1, keepdim=True)\nreturn (x - mean) / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)",
)


def norm(body: str) -> str:
    return attention(body, NORM)


@pytest.mark.parametrize("body", NORMS)
def test_a_norm_by_hand_becomes_one_kernel_with_the_same_values_and_gradients(body: str) -> None:
    after = edited("fused_norm", norm(body))
    found = []
    for source in (norm(body), after):
        names: dict[str, Any] = {}
        exec(source, names)
        torch.manual_seed(0)
        model, x = names["Norm"](16).double(), torch.randn(2, 5, 16, dtype=torch.float64, requires_grad=True)
        torch.nn.init.normal_(model.gain), torch.nn.init.normal_(model.shift)
        out = model(x)
        out.square().sum().backward()
        found.append((out, x.grad, model.gain.grad, model.shift.grad))
    assert "_norm(x, x.shape[-1:]" in after
    assert ".mean(" not in after.partition("def forward")[2]
    for one, other in zip(*found, strict=True):
        assert one is other is None or torch.allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("body", NO_NORMS)
def test_what_is_no_norm_stays_as_it_is(body: str) -> None:
    assert edited("fused_norm", norm(body)) == norm(body)
