"""A small training with everything that goes wrong in trainings, and the ways in which it can."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

SEQ, VOCAB, WIDTH, BATCH, ACCUMULATE, STEPS = 24, 50, 32, 8, 2, 32


class Packed(IterableDataset):
    """Documents packed into rows, with the number of its document beside each token."""

    def __init__(self, duplicated: bool, num: int) -> None:
        self.duplicated, self.num = duplicated, num

    def __iter__(self):
        generator = torch.Generator().manual_seed(7)
        last: Any = None
        for number in range(self.num):
            tokens = torch.randint(0, VOCAB, (SEQ,), generator=generator)
            cut = int(torch.randint(4, SEQ - 4, (1,), generator=generator))
            documents = (torch.arange(SEQ) >= cut).long()
            if self.duplicated and number % 2:
                tokens, documents = last
            last = tokens, documents
            yield tokens, documents


class Net(nn.Module):
    """Packed causal attention, batch norm, dropout, a head tied to the embedding."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.cached, self.mask = fault, None, None
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.dropout = nn.BatchNorm1d(WIDTH), nn.Dropout(0.2)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        if self.fault == "input mutated":
            tokens.clamp_(1)
        x = self.embedding(tokens)
        q, k, v = self.mix(x).chunk(3, -1)
        may_see = documents[:, :, None] == documents[:, None, :]
        if self.fault == "attention leaks across documents":
            may_see = torch.ones_like(may_see)
        may_see = may_see & torch.ones(SEQ, SEQ, dtype=torch.bool).tril()
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=may_see))
        if self.fault == "stale batch norm":
            self.norm.eval()
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        x = self._dropped(x)
        logits = self.head(x)
        if self.fault == "cached output":
            self.cached = logits if self.cached is None else logits * 0 + self.cached.detach()
            return self.cached
        return logits

    def _dropped(self, x: torch.Tensor) -> torch.Tensor:
        if self.fault != "frozen dropout":
            return self.dropout(x)
        if self.mask is None:
            self.mask = self.dropout(torch.ones_like(x))
        return x * self.mask


def train(
    fault: str = "", *, seeded: bool = True, dtype: str = "", steps: int = STEPS, changed: Any = None, late: int = 0
) -> None:
    """Train for some updates; `fault` is what goes wrong from update `late` on, `changed(model, optimizer)` may alter
    them."""
    if seeded:
        torch.manual_seed(0)
        random.seed(0)
    model = Net(fault)
    decay = 0.02 if fault == "weight decay changed" else 0.01
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=decay)
    if changed is not None:
        changed(model, optimizer)
    each = BATCH - 1 if fault == "fewer samples" else BATCH
    loader = DataLoader(Packed(fault == "data duplicated", BATCH * ACCUMULATE * steps), batch_size=each, drop_last=True)
    batches = iter(loader)
    if fault == "one batch late":
        next(batches)
    for step in range(steps):
        optimizer.zero_grad()
        now = model.fault = fault if step >= late else ""
        for _ in range(ACCUMULATE):
            tokens, documents = next(batches, (None, None))
            if tokens is None:
                return
            _backward(model, tokens, documents, now, step, dtype)
        _spoil(model, now)
        optimizer.step()
        _spoil_weights(model, now)


def _backward(model: Net, tokens: Any, documents: Any, fault: str, step: int, dtype: str) -> None:
    with torch.autocast("cpu", getattr(torch, dtype) if dtype else torch.bfloat16, enabled=bool(dtype)):
        logits = model(tokens, documents)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).to(logits.dtype), tokens[:, 1:].flatten())
    denominator = 1 if fault == "wrong loss denominator" else ACCUMULATE
    if fault == "loss is NaN" and step >= 3:
        loss = loss * float("nan")
    if fault == "no loss captured":
        torch.autograd.grad(loss, [model.head.weight])
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        return
    (loss / denominator).backward()


def _spoil(model: Net, fault: str) -> None:
    factor = {"gradients doubled": 2.0, "gradients scaled by 0.001": 0.001, "gradients zeroed": 0.0}.get(fault)
    if factor is not None:
        for parameter in model.parameters():
            parameter.grad.mul_(factor)
    if fault == "a layer's gradient dropped":
        model.out.weight.grad = None
    if fault == "a layer's gradient zeroed":
        model.out.weight.grad.zero_()


def _spoil_weights(model: Net, fault: str) -> None:
    """After the update, where no hook of an optimizer looks."""
    with torch.no_grad():
        for parameter in model.parameters():
            if fault == "weights rounded to bfloat16":
                parameter.copy_(parameter.bfloat16())
            if fault == "weights drift":
                parameter.mul_(1.001)
