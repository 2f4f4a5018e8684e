"""Each remedy on a program that has what it is for: it takes hold, does what its page says, and is gone afterwards."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import inspect
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset

from gobrrr.errors import GobrrrError
from gobrrr.guard.watch.witness import Witness
from gobrrr.remedies import registry
from gobrrr.remedies.compile.compile import compile_in_place
from gobrrr.remedies.mechanism.applying import install
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.rules.model.finding import Finding, Quantity, Saving
from gobrrr.rules.verdict.report import Account, Report, Step, Verdict


@contextlib.contextmanager
def applied(name: str) -> Iterator[dict[str, str]]:
    if why := registry.remedy(name).probe():
        pytest.skip(why)
    said: dict[str, str] = {}
    seams = Seams(lambda remedy, detail: said.update({remedy: detail}))
    install(seams, [name])
    try:
        yield said
    finally:
        seams.remove()


def with_and_without(name: str, trained: Callable[[], list[torch.Tensor]]) -> tuple[dict[str, str], bool]:
    """What the remedy said that it did, and whether the tensors came out bit for bit as without it."""
    plain = trained()
    with applied(name) as said:
        found = trained()
    return said, all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


def step(model: nn.Module, optimizer: Any, x: torch.Tensor, **zero: Any) -> None:
    optimizer.zero_grad(**zero)
    model(x).square().mean().backward()
    optimizer.step()


def gradient(tensor: torch.Tensor) -> Any:
    """Without reading it, which would fill it."""
    attribute: Any = torch._C.TensorBase.grad
    return attribute.__get__(tensor)


def test_gradients_are_dropped_instead_of_zeroed() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with applied("set_to_none") as said:
        step(model, optimizer, torch.ones(2, 3))
        optimizer.zero_grad(set_to_none=False)
        assert gradient(model.weight) is None and said == {"set_to_none": "SGD"}
        model(torch.ones(2, 3)).sum().backward()
        model.zero_grad(set_to_none=False)
        assert gradient(model.weight) is None
    step(model, optimizer, torch.ones(2, 3))
    optimizer.zero_grad(set_to_none=False)
    assert torch.equal(model.weight.grad, torch.zeros(3, 3))


def test_a_backbone_that_nobody_updates_gets_no_gradients() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    with applied("freeze_unused") as said:
        step(model, optimizer, torch.ones(2, 3))
        step(model, optimizer, torch.ones(2, 3))
        assert model[0].weight.grad is None and model[1].weight.grad is not None
        assert said == {"freeze_unused": "2 parameters"}
    assert model[0].weight.requires_grad


def test_what_backward_does_not_reach_decays_as_it_would_with_zeros() -> None:
    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
        for number in range(6):
            optimizer.zero_grad(set_to_none=False)
            used = model[:1] if number >= 3 else model
            sum(part(torch.ones(2, 3)).square().sum() for part in used).backward()
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    said, same = with_and_without("set_to_none", trained)
    assert said and same


def decayed(how: str) -> list[torch.Tensor]:
    """Two layers, of which one is not reached from the fourth step on."""
    torch.manual_seed(0)
    model = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
    table = nn.Embedding(9, 3, sparse=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    sparse = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    for number in range(6):
        used = model[:1] if number >= 3 else model

        def loss(used: Any = used, number: int = number) -> torch.Tensor:
            if how == "closure":
                optimizer.zero_grad(set_to_none=False)
            seen = table(torch.tensor([1, 2])) if how == "sparse" and number < 3 else torch.ones(2, 3)
            found = sum(part(seen).square().sum() for part in used)
            found.backward()
            return found

        if how != "closure":
            optimizer.zero_grad(set_to_none=False)
        if how == "sparse":
            sparse.zero_grad(set_to_none=False)
        if how == "twice":
            model.zero_grad(set_to_none=True)
        if how == "closure":
            optimizer.step(loss)
        else:
            loss()
            optimizer.step()
        if how == "sparse":
            sparse.step()
    return [p.detach() for p in (*model.parameters(), *table.parameters())]


@pytest.mark.parametrize("how", ["plain", "closure", "twice", "sparse"])
def test_zeros_are_where_the_program_wants_them(how: str) -> None:
    plain = decayed(how)
    with applied("set_to_none"):
        found = decayed(how)
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


@pytest.mark.parametrize("detached", [False, True])
def test_gradients_that_share_a_buffer_are_zeroed_in_it(detached: bool) -> None:
    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer, buffer, start = torch.optim.SGD(model.parameters(), lr=0.1), torch.zeros(12), 0
        for p in model.parameters():
            part = buffer[start : start + p.numel()].view_as(p)
            p.grad, start = part.detach() if detached else part, start + p.numel()
        for _ in range(3):
            optimizer.zero_grad(set_to_none=False)
            model(torch.ones(2, 3)).square().sum().backward()
            buffer.mul_(0.5)
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    said, same = with_and_without("set_to_none", trained)
    assert not said and same


@pytest.mark.parametrize("kept", [
    lambda gradient: gradient, lambda gradient: gradient.data, lambda gradient: gradient.view(-1),
    lambda gradient: gradient.numpy(),
])  # fmt: skip
def test_gradients_that_the_program_keeps_are_zeroed_and_filled_as_ever(kept: Callable[[Any], Any]) -> None:
    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer, held = torch.optim.SGD(model.parameters(), lr=0.1), []
        for _ in range(4):
            optimizer.zero_grad(set_to_none=False)
            model(torch.ones(2, 3)).square().mean().backward()
            held = held or [kept(p.grad) for p in model.parameters()]
            for each in held:
                each.clip(-0.01, 0.01, out=each) if hasattr(each, "ctypes") else each.clamp_(-0.01, 0.01)
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    _, same = with_and_without("set_to_none", trained)
    assert same


@pytest.mark.parametrize(
    "how", ["none", "compiled", "deleted", "read", "read in inference", "clipped", "sparse", "added"]
)
def test_what_becomes_of_a_gradient_between_zero_grad_and_the_update_is_as_it_was(how: str) -> None:
    """DINO's last layer has its gradients dropped by the program itself; others read those that backward leaves out."""

    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        used, other, table = nn.Linear(3, 3), nn.Linear(3, 3), nn.Embedding(4, 3, sparse=True)
        parameters = [p for each in (used, other, table) for p in each.parameters()]
        optimizer, seen = torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.1), []

        def drop() -> None:
            for p in other.parameters():
                p.grad = None

        if how == "compiled":
            torch.compiler.reset()
            drop = torch.compile(drop, backend="eager")
        for number in range(6):
            optimizer.zero_grad(set_to_none=False)
            late = number >= 3
            rows = table(torch.tensor([1, 1, 2])) if late and how == "sparse" else table.weight
            reached = not late or how in ("none", "compiled", "deleted")
            loss = used(rows).square().sum()
            (loss + other(torch.ones(2, 3)).sum() if reached else loss).backward()
            if not reached and how == "read in inference":
                with torch.inference_mode():
                    seen.append(other.weight.grad.clone())
            elif how == "clipped":
                nn.utils.clip_grad_norm_(parameters, 0.1)
            if late and how in ("none", "compiled"):
                drop()
            for p in other.parameters() if late else ():
                if how == "deleted":
                    del p.grad
                elif how == "read":
                    seen.append(p.grad.abs().sum())
                elif how == "added":
                    p.grad.add_(0.5)
            optimizer.step()
        return [*seen, *(p.detach() for p in parameters)]

    said, same = with_and_without("set_to_none", trained)
    assert said and same


def test_what_was_dropped_has_its_zeros_where_the_next_ones_are_kept() -> None:
    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        optimizer, held = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1), []
        for used in (model, model[:1]):
            optimizer.zero_grad(set_to_none=False)
            sum(part(torch.ones(2, 3)).square().sum() for part in used).backward()
        held.append(model[0].weight.grad)
        optimizer.zero_grad(set_to_none=False)
        optimizer.step()
        return [p.detach() for p in model.parameters()]

    said, same = with_and_without("set_to_none", trained)
    assert said and same


@pytest.mark.parametrize("first", ["set_to_none", "sparse_gradient"])
def test_gradients_keep_their_zeros_where_somebody_else_watches_them(first: str) -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    second = {"set_to_none": "sparse_gradient", "sparse_gradient": "set_to_none"}[first]
    with applied(first), applied(second) as said:
        step(model, optimizer, torch.ones(2, 3))
        optimizer.zero_grad(set_to_none=False)
        assert torch.equal(gradient(model.weight), torch.zeros(3, 3)) and not said


def test_a_zero_grad_that_the_program_has_wrapped_fills_with_zeros_once_the_remedy_is_gone() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with applied("set_to_none"):
        kept = torch.optim.SGD.zero_grad
        model(torch.ones(2, 3)).sum().backward()
        optimizer.zero_grad(set_to_none=False)
        assert gradient(model.weight) is None
    assert torch.equal(model.weight.grad, torch.zeros(3, 3))
    model(torch.ones(2, 3)).sum().backward()
    kept(optimizer, set_to_none=False)
    assert torch.equal(model.weight.grad, torch.zeros(3, 3))


def test_what_the_program_has_wrapped_does_nothing_once_the_remedies_are_gone() -> None:
    """It stays where it is, and calls ours."""
    model, plain = nn.Linear(1, 1, bias=False), torch.autograd.backward
    iterator = DataLoader.__init__
    try:
        with applied("float16_autocast"):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
            step(model, optimizer, torch.ones(2, 1))
            ours = torch.autograd.backward
            torch.autograd.backward = lambda *args, **kwargs: ours(*args, **kwargs)
        model.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
        assert model.weight.grad.item() == 1.0
    finally:
        torch.autograd.backward = plain
    try:
        with applied("one_worker"):
            loaders = DataLoader.__init__
            DataLoader.__init__ = lambda *args, **kwargs: loaders(*args, **kwargs)
            assert DataLoader([1]).num_workers == 1
        assert DataLoader([1]).num_workers == 0
    finally:
        DataLoader.__init__ = iterator


def unfrozen_later(second: bool) -> list[torch.Tensor]:
    """A head is trained, then its backbone too: by the same optimizer or by another one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizers = [torch.optim.SGD(model[1].parameters(), lr=0.1)]
    for number in range(6):
        if number == 3 and second:
            optimizers.append(torch.optim.SGD(model[0].parameters(), lr=0.1))
        elif number == 3:
            optimizers[0].add_param_group(param_group={"params": model[0].parameters()})
        model.zero_grad()
        model(torch.ones(2, 3)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("second", [False, True])
def test_a_backbone_that_is_unfrozen_later_is_trained(second: bool) -> None:
    plain = unfrozen_later(second)
    with applied("freeze_unused") as said:
        found = unfrozen_later(second)
    assert said and all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


@pytest.mark.parametrize("whose", ["model", "optimizer"])
@pytest.mark.parametrize("how", ["extended", "replaced", "in place"])
def test_a_backbone_that_is_written_into_a_group_is_trained(how: str, whose: str) -> None:
    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
        group = optimizer.param_groups[0]
        for number in range(6):
            if number == 3 and how == "extended":
                group["params"].extend(model[0].parameters())
            elif number == 3 and how == "replaced":
                group["params"] = list(model.parameters())
            elif number == 3:
                group["params"][0] = model[0].weight
            if whose == "model" or number == 3:
                model.zero_grad()
            if whose == "optimizer":
                optimizer.zero_grad()
            model(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    said, same = with_and_without("freeze_unused", trained)
    assert said and same


@pytest.mark.parametrize("how", ["updated", "asked", "asked by its edge", "asked of backward"])
def test_gradients_that_are_needed_when_the_forward_is_over_are_not_left_out_in_silence(how: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer, weight = torch.optim.SGD(model[1].parameters(), lr=0.1), model[0].weight
    with applied("freeze_unused") as said:
        for _ in range(3):
            step(model, optimizer, torch.ones(2, 3))
        loss = model(torch.ones(2, 3)).square().sum()
        if how != "updated":
            model.zero_grad()
        with pytest.raises(GobrrrError, match="not computed"):
            if how == "updated":
                optimizer.param_groups[0]["params"].append(weight)
                optimizer.step()
            if how == "asked of backward":
                loss.backward(inputs=weight)
                return
            edge = torch.autograd.graph.get_gradient_edge(weight)
            torch.autograd.grad(loss, weight if how == "asked" else edge, allow_unused=True)
    assert said


ASKED = {
    "grad": lambda loss, weight: torch.autograd.grad(loss, [weight])[0],
    "backward": lambda loss, weight: loss.backward(inputs=iter([weight])),
    "in its place": lambda loss, weight: torch.autograd.backward(loss, None, None, False, None, [weight]),
    "by name": lambda loss, weight: loss.backward(inputs={"weight": weight}),
}


@pytest.mark.parametrize("beside", ["", "sparse_gradient", "float16_autocast", "guard"])
@pytest.mark.parametrize("how", ASKED)
def test_gradients_that_are_asked_for_from_the_beginning_are_computed(how: str, beside: str) -> None:
    """Whoever else stands between the program and torch."""
    if how == "by name" and "dict" not in str(inspect.signature(torch.autograd.backward)):
        pytest.skip("this torch takes no names")

    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
        optimizer, seen = torch.optim.SGD(model[2].parameters(), lr=0.1), []
        weight = model[0].weight
        for _ in range(4):
            model.zero_grad()
            loss = model(torch.ones(2, 3)).square().sum()
            found = ASKED[how](loss, weight)
            seen.append((weight.grad if found is None else found).clone())
            step(model, optimizer, torch.ones(2, 3))
        return seen

    other = Witness() if beside == "guard" else applied(beside) if beside else contextlib.nullcontext()
    with contextlib.nullcontext() if beside in ("", "guard") else applied(beside):
        plain = trained()
    with applied("freeze_unused") as said, other:
        found = trained()
    assert said
    torch.testing.assert_close(found, plain, rtol=0.02, atol=1e-3)  # float16's scale may be another by then


HEARD: dict[str, Callable[[nn.Parameter, Callable[[Any], None]], Any]] = {
    "hook": lambda weight, heard: weight.register_hook(heard),
    "behind": lambda weight, heard: weight.register_post_accumulate_grad_hook(lambda p: heard(p.grad)),
    "together": lambda weight, heard: torch.autograd.graph.register_multi_grad_hook([weight], lambda g: heard(g[0])),
}


@pytest.mark.parametrize("since", [0, 3])
@pytest.mark.parametrize("how", HEARD)
def test_who_hooks_a_weight_hears_of_its_gradient(how: str, since: int) -> None:
    """Norms of a backbone's gradients were 0.04 for 22, and the guard, whom they pass by, called it exact."""

    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Linear(3, 2))
        optimizer, seen = torch.optim.SGD(model[3].parameters(), lr=0.1), list[torch.Tensor]()
        for number in range(6):
            if number == since:
                HEARD[how](model[0].weight, lambda gradient: seen.append(gradient.clone()))
            model.zero_grad()
            step(model, optimizer, torch.ones(2, 3))
        return seen

    said, same = with_and_without("freeze_unused", trained)
    assert said and same


def test_a_hook_that_comes_behind_the_forward_is_not_left_in_silence() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    with applied("freeze_unused") as said:
        for _ in range(3):
            step(model, optimizer, torch.ones(2, 3))
        model.zero_grad()
        loss = model(torch.ones(2, 3)).sum()
        model[0].weight.register_hook(print)
        with pytest.raises(GobrrrError, match="not computed"):
            loss.backward()
    assert said


def test_a_gradient_that_is_to_come_is_not_emptied_before() -> None:
    """zero_grad() between forward and backward: what the forward left out was forgotten, and clipped without a word."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    with applied("freeze_unused") as said:
        for clips in (False, False, False, True):
            loss = model(torch.ones(2, 3)).square().mean()
            model.zero_grad()
            loss.backward()
            if not clips:
                optimizer.step()
        with pytest.raises(GobrrrError, match="not computed"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert said


@pytest.mark.parametrize("since", [0, 3])
def test_a_checkpoint_that_asks_its_inputs_keeps_all_awake(since: int) -> None:
    """A reentrant one computes no gradients at all where none of its inputs asks for one."""

    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)

        class Whole(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.parts, self.checks = model, False

            def forward(self, x: torch.Tensor) -> Any:
                found = self.parts[0](x)
                return checkpoint(self.parts[1], found, use_reentrant=True) if self.checks else self.parts[1](found)

        whole = Whole()
        for number in range(6):
            whole.checks = number >= since
            step(whole, optimizer, torch.tensor([1, 2]))
        return [p.detach() for p in model.parameters()]

    plain = trained()
    with applied("freeze_unused") as said:
        if since:
            with pytest.raises(GobrrrError, match="not computed"):
                trained()
        else:
            torch.testing.assert_close(trained(), plain)
    assert bool(said) == bool(since)


class Padded(nn.Module):
    """A body of torch's, in eval() mode, that sees padding, and a head."""

    def __init__(self, recomputes: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2).eval(), nn.Linear(8, 2)
        self.recomputes = recomputes

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> Any:
        def run(x: torch.Tensor) -> Any:
            return self.body(x, src_key_padding_mask=padding)

        return self.head((checkpoint(run, x, use_reentrant=False) if self.recomputes else run(x)).mean(1))


@pytest.mark.parametrize("how", ["", "checkpoint", "frozen by itself", "one of two"])
def test_a_body_of_transformer_layers_goes_the_way_that_it_goes_with_a_graph(how: str) -> None:
    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, padding = Padded(recomputes=how == "checkpoint"), torch.arange(6).expand(4, 6) >= 3
        if how:
            frozen = {"frozen by itself": model.body, "one of two": model.body.layers[1]}.get(how, nn.Module())
            frozen.requires_grad_(False)
        optimizer, losses = torch.optim.SGD(model.head.parameters(), lr=0.1), []
        for _ in range(4):
            optimizer.zero_grad()
            losses.append(model(torch.randn(4, 6, 8), padding).sub(1.0).square().mean())
            losses[-1].backward()
            optimizer.step()
        return [each.detach() for each in losses]

    said, same = with_and_without("freeze_unused", trained)
    assert bool(said) == (how != "frozen by itself") and same


def test_equal_bits_are_promised_only_where_torch_chooses_no_kernel_by_gradients() -> None:
    """It folds a transposed input into a matrix where the weight asks for one."""
    found: list[torch.Tensor] = []

    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(1000, 10), nn.Linear(10, 2))
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
        for _ in range(3):
            step(model, optimizer, torch.randn(4, 1000, 9).transpose(1, 2))
        found.append(model[1].weight.detach())
        return found[-1:]

    said, same = with_and_without("freeze_unused", trained)
    assert said and (same or registry.remedy("freeze_unused").safety != "exact")
    torch.testing.assert_close(*found)


def test_a_hook_that_comes_later_has_the_gradients_of_a_body_that_is_not_trained() -> None:
    def looked_into() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), torch.ones(2, 3)
        optimizer, seen = torch.optim.SGD(model[2].parameters(), lr=0.1), []

        def keep(module: Any, given: Any, output: torch.Tensor) -> None:
            output.retain_grad()
            seen.append(output)

        for _ in range(3):
            step(model, optimizer, x)
        hooks = [model[1].register_forward_hook(keep)]
        hooks.append(model[0].register_full_backward_hook(lambda module, given, got: seen.append(got[0])))
        model(x).sum().backward()
        for hook in hooks:
            hook.remove()
        step(model, optimizer, x)
        return [seen[0].grad, seen[1]]

    plain = looked_into()
    with applied("freeze_unused") as said:
        found = looked_into()
    assert said and all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


@pytest.mark.parametrize(("before", "emptied"), [(1, False), (3, False), (3, True)])
@pytest.mark.parametrize("how", ["clipped", "added"])
def test_gradients_that_would_have_added_up_are_not_left_out_in_silence(how: str, before: int, emptied: bool) -> None:
    """The optimizer's zero_grad() empties the head's alone, so that all counts that came since the beginning, or since
    the model's."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)

    def trained(clips: bool = False) -> None:
        model(torch.ones(2, 3)).square().sum().backward()
        if clips:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()

    with applied("freeze_unused") as said:
        for number in range(before):
            trained()
            if emptied and not number:
                model.zero_grad()
        if how == "added":
            optimizer.add_param_group({"params": model[0].parameters()})
        with pytest.raises(GobrrrError, match="not computed"):
            trained(clips=how == "clipped")
    assert said


def test_an_evaluation_has_no_gradients_that_would_have_added_up() -> None:
    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), torch.ones(2, 3)
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
        for number in range(4):
            model.zero_grad()
            with torch.no_grad():
                model(x)
            if number == 2:
                optimizer.add_param_group({"params": model[0].parameters()})
            model(x).square().sum().backward()
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    said, same = with_and_without("freeze_unused", trained)
    assert said and same


class Checkpointed(nn.Sequential):
    recomputes = False

    def forward(self, x: torch.Tensor) -> Any:
        run = super().forward
        return checkpoint(run, x, use_reentrant=False) if self.recomputes else run(x)


def tuned(how: str) -> list[torch.Tensor]:
    """Only the head of a model at first, then all of it, or of a copy."""
    torch.manual_seed(0)
    model = Checkpointed(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    model.recomputes = how == "checkpoint"
    for first in (True, False):
        part = model[2] if first else model
        optimizer = torch.optim.SGD([p for p in part.parameters() if p.requires_grad], lr=0.1)
        for _ in range(3):
            model.zero_grad()
            x = torch.ones(2, 3, requires_grad=how == "checkpoint")
            found = model(x)
            found.square().sum().backward()
            if how == "clip":
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        if first and how == "copy":
            model = copy.deepcopy(model)
        if first and how == "pickle":
            model = pickle.loads(pickle.dumps(model))
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("how", ["plain", "copy", "pickle", "clip", "checkpoint"])
def test_a_body_that_was_not_trained_at_first_is_trained_later(how: str) -> None:
    plain = tuned(how)
    with applied("freeze_unused") as said:
        found = tuned(how)
    assert bool(said) == (how != "clip") and all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


@pytest.mark.parametrize("compiled", ["", "in place", "wrapped"])
def test_a_body_that_is_not_trained_asks_for_no_gradients_but_says_it_does(compiled: str) -> None:
    model: Any = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    if compiled == "in place":
        model.compile(backend="aot_eager")
    called = torch.compile(model, backend="aot_eager") if compiled == "wrapped" else model
    with applied("freeze_unused"):
        for _ in range(3):
            step(called, optimizer, torch.ones(2, 3))
        assert model[0].weight.grad is None and model[1].weight.grad is not None
        assert all(p.requires_grad for p in model.parameters())


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_a_distributed_model_whose_gradients_are_waited_for_is_left_alone(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'met'}", rank=0, world_size=1)
    try:
        with applied("freeze_unused") as said:
            model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
            optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
            distributed = nn.parallel.DistributedDataParallel(model)
            for _ in range(3):
                step(distributed, optimizer, torch.ones(2, 3))
            assert not said and model[0].weight.grad is not None
    finally:
        torch.distributed.destroy_process_group()


def test_what_an_optimizer_that_has_not_stepped_yet_holds_is_not_frozen() -> None:
    with applied("freeze_unused") as said:
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]
        step(model, optimizers[1], torch.ones(2, 3))
        assert not said and all(p.requires_grad for p in model.parameters())


def test_a_model_is_compiled_in_place_for_its_first_call_already() -> None:
    from torch._dynamo.utils import counters

    model = nn.Sequential(nn.Linear(4, 4), nn.GELU())
    counters.clear()
    keys = list(model.state_dict())
    with applied("compile") as said:
        found = model(torch.ones(2, 4))
        assert counters["stats"]["unique_graphs"] == 1 and sum(counters["graph_break"].values()) == 0
        assert said == {"compile": "Sequential"} and list(model.state_dict()) == keys
    torch.testing.assert_close(found, model(torch.ones(2, 4)))


def test_a_class_may_have_a_compile_of_its_own() -> None:
    """Keras' takes the optimizer and the loss."""

    class Model(nn.Linear):
        def compile(self, loss: str) -> None:
            raise AssertionError("not ours to call")

    model, x = Model(4, 2), torch.randn(3, 4)
    expected = model(x)
    with applied("compile") as said:
        torch.testing.assert_close(model(x), expected)
        assert said == {"compile": "Model"} and model._compiled_call_impl is not None


def test_numpys_stream_goes_on_in_compiled_code() -> None:
    """Noise of the program's own: its next draw was 0.509 for 0.446."""
    import torch._dynamo.config as dynamo

    class Noisy(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.from_numpy(np.random.randn(3, 2)).float()

    def run() -> list[torch.Tensor]:
        torch.manual_seed(0)
        np.random.seed(0)
        model, x = Noisy(4, 2), torch.ones(3, 4)
        return [*(model(x).detach() for _ in range(3)), torch.tensor(np.random.rand())]

    plain, before = run(), dynamo.use_numpy_random_stream
    with applied("compile") as said:
        torch.testing.assert_close(run(), plain)
    assert said and dynamo.use_numpy_random_stream == before


@pytest.mark.parametrize("name", ["compile", "compile_frozen", "sdpa_attention"])
def test_hooks_that_are_put_on_a_compiled_model_later_are_called(name: str) -> None:
    import torch._dynamo.config as dynamo

    before = dynamo.skip_nnmodule_hook_guards
    model, x, seen = Attending().eval(), torch.randn(2, 3, 4), []
    with applied(name) as said, torch.no_grad():
        expected = model(x)
        assert said and model._compiled_call_impl is not None
        model[0].register_forward_hook(lambda module, given, output: seen.append(output))
        model.register_forward_hook(lambda module, given, output: 2 * output)
        torch.testing.assert_close(model(x), 2 * expected)
        assert len(seen) == 1
    assert dynamo.skip_nnmodule_hook_guards == before


class Attending(nn.Sequential):
    """Attention by hand."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self[0](x).chunk(3, -1)
        found: torch.Tensor = torch.softmax(q @ k.mT / 2.0, -1) @ v
        return found


def test_a_model_without_attention_is_not_left_captured() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with applied("sdpa_attention") as said:
        model(torch.ones(2, 4))
        assert not said and model._compiled_call_impl is None


def test_a_model_that_only_infers_is_frozen_and_one_that_trains_is_not() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with applied("compile_frozen") as said:
        model(torch.ones(2, 4))
        assert not said
    model.eval()
    expected = model(torch.ones(2, 4)).detach()
    with applied("compile_frozen") as said, torch.no_grad():
        torch.testing.assert_close(model(torch.ones(2, 4)), expected)
        assert said
    import torch._inductor.config as inductor

    assert inductor.freezing is False


@pytest.mark.parametrize("how", ["loaded", "replaced"])
def test_a_frozen_model_whose_weights_change_runs_as_ever(how: str) -> None:
    model, other = (nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval() for _ in range(2))
    x = torch.randn(8, 4)
    with applied("compile_frozen") as said, torch.no_grad():
        model(x)
        assert said and model._compiled_call_impl is not None
        if how == "loaded":
            model.load_state_dict(other.state_dict())
        else:
            model[0].weight, model[0].bias = other[0].weight, other[0].bias
        assert torch.equal(model(x), other._call_impl(x)) and model._compiled_call_impl is None


def test_a_model_that_counts_no_writes_is_not_frozen() -> None:
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(4, 4)).eval()
        with applied("compile_frozen") as said:
            model(torch.randn(8, 4))
    assert not said


def test_products_are_in_bfloat16_and_outputs_in_float32() -> None:
    model, x = nn.Linear(64, 64), torch.randn(8, 64)
    expected = model(x)
    with applied("bf16_autocast"):
        lowered = model(x)
    assert lowered.dtype == torch.float32
    error = ((lowered - expected).norm() / expected.norm()).item()
    assert 1e-4 < error < 2e-2
    assert torch.equal(model(x), expected)


def test_what_is_compiled_can_be_traced() -> None:
    """torch.jit.trace after training: it takes no compiled code, and the program ended there."""
    model, x = nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.rand(2, 4)
    seams = Seams(lambda *_: None)
    compile_in_place(model, seams, backend="eager")
    expected = model(x)
    with applied("compile") as said:
        torch.testing.assert_close(torch.jit.trace(model, x)(x), expected)
    seams.remove()
    assert not said and model._compiled_call_impl is None, "nor is anything compiled that torch makes for it"


class Choosing(nn.Module):
    """As models of transformers are."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.config = SimpleNamespace(_attn_implementation="eager", output_attentions=False)

    def set_attn_implementation(self, name: str) -> None:
        self.config._attn_implementation = name

    def forward(self, x: torch.Tensor, output_attentions: bool | None = None) -> str:
        return str(self.config._attn_implementation)


def test_attention_weights_are_made_where_they_are_asked_for() -> None:
    """Maps of BERT's attention, looked at after training, were none."""
    model, x = Choosing(), torch.ones(1, 2)
    with applied("sdpa_attention") as said:
        assert [model(x), model(x, output_attentions=True), model(x)] == ["sdpa", "eager", "sdpa"]
        model.config.output_attentions = True
        assert [model(x), model(x, output_attentions=False)] == ["eager", "sdpa"]
    assert said and model(x) == "eager" and "forward" not in vars(model)


def test_images_and_weights_have_their_channels_last() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    x = torch.randn(2, 3, 8, 8)
    expected = model(x)
    with applied("channels_last"):
        found = model(x)
        assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
        assert found.is_contiguous(), "as without it: .view() goes on working"
        own = model(x.to(memory_format=torch.channels_last))
        assert own.is_contiguous(memory_format=torch.channels_last), "and so it does where the program has its own"
    torch.testing.assert_close(found, expected)
    assert model[0].weight.is_contiguous() and torch.equal(model(x), expected)


@pytest.mark.parametrize(
    "image",
    [
        lambda x: x[:, :, :6, 1:7],  # a crop
        lambda x: x[:, :1, :, :].expand(-1, 3, -1, -1),  # a mask for all channels
        lambda x: x[0],  # one sample
        lambda x: x[:, :, :1, :1].repeat(1, 1, 4, 4),
    ],
)
def test_outputs_lie_as_without_it_however_the_image_does(image: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """And parts of it, and what is no image any more; but what is the program's own stays that."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Conv2d(3, 8, 3)
            self.register_buffer("state", torch.zeros(4, 4, 2))

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            found = self.body(x)
            patches, pairs = found.flatten(-2), found.unflatten(-3, (2, 4))
            return [found, found.narrow(-3, 0, 4), patches, pairs, self.state.permute(2, 0, 1), x.transpose(-1, -2)]

    torch.manual_seed(0)
    model, x = Parts(), torch.rand(2, 3, 8, 8)
    plain = model(image(x))
    with applied("channels_last"):
        given = image(x)
        found = model(given)
        assert all(each.is_contiguous() for each in found[:4])
        *_, state, own = found
        state.add_(1)
        assert bool(model.state.all()) and own.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()
    torch.testing.assert_close(found[:4], plain[:4])


def test_what_a_module_holds_itself_is_given_out_itself() -> None:
    """Parameters and tensors in attributes, of the model and inside of it; but what a forward has left in an attribute
    is a convolution's."""

    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.inside = nn.Conv2d(3, 8, 3), nn.Linear(4, 2)
            self.inside.plain = torch.zeros(3, 2)

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            self.features = self.body(x)
            return [self.features, self.inside.weight.t(), self.inside.plain.t()]

    model, x = Holds(), torch.rand(2, 3, 8, 8)
    with applied("channels_last") as said, torch.no_grad():
        features, *own = model(x)
        for each in own:
            each.fill_(7)
        assert said and features.is_contiguous()
    assert bool((model.inside.weight == 7).all() and (model.inside.plain == 7).all())


def test_only_weights_of_convolutions_lie_otherwise_and_only_for_a_time() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 4, 1), nn.Conv2d(4, 4, 1))
            self.solid = nn.Conv3d(3, 4, 2)
            self.own = nn.Parameter(torch.rand(2, 4, 3, 5).transpose(1, 2))
            self.register_buffer("table", torch.rand(2, 3, 4, 5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x).sum() + self.own.sum() + self.solid.weight.sum()

    def strides() -> dict[str, tuple[int, ...]]:
        return {name: each.stride() for name, each in model.state_dict().items()}

    model, x = Mixed(), torch.rand(2, 3, 8, 8)
    before = strides()
    with applied("channels_last") as said:
        model(x).backward()
        assert said and {name for name, each in strides().items() if each != before[name]} == {
            "body.0.weight", "body.1.weight", "body.2.weight"
        }  # fmt: skip
    assert strides() == before
    assert all(each.weight.grad.stride() == each.weight.stride() for each in model.body)


def test_weights_that_are_made_later_or_of_others_are_not_looked_at() -> None:
    lazy = nn.LazyConv2d(4, 3)
    normed = nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 4, 3))
    with applied("channels_last") as said:
        lazy(torch.rand(2, 3, 8, 8))
        assert not said
    before = normed.parametrizations.weight[0]._u.clone()
    seen: list[bool] = []
    normed.register_forward_pre_hook(
        lambda module, given: seen.append(torch.equal(before, module.parametrizations.weight[0]._u))
    )
    with applied("channels_last") as said:
        normed(torch.rand(2, 3, 8, 8))
    assert said and seen == [True], "reading a weight in training would update it"


def test_a_model_that_has_its_channels_last_already_keeps_them() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3)).to(memory_format=torch.channels_last)
    with applied("channels_last") as said:
        assert not model(torch.randn(2, 3, 8, 8)).is_contiguous()
    assert not said and model[0].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("asks", [False, True])
def test_what_a_forward_writes_into_an_image_is_in_the_programs(asks: bool) -> None:
    class Masks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
            x.mul_(self.body.bias[:3].view(3, 1, 1) + 2 if asks else 3)
            return self.body(x)

    def run() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, x, other = Masks(), torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)
        before = other.clone()
        found = model(x, other=other)
        (found.square().mean() + x.mean()).backward()
        assert torch.equal(other, before)
        return [found.detach(), x.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    def served() -> torch.Tensor:
        torch.manual_seed(0)
        model, x = Masks(), torch.rand(2, 3, 8, 8)
        with torch.inference_mode():
            model(x)
        return x

    def attacked() -> list[torch.Tensor]:
        class Clamps(Masks):
            def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
                with torch.no_grad():
                    x.clamp_(0.2, 0.4)
                return self.body(x)

        torch.manual_seed(0)
        model, x = Clamps(), torch.rand(2, 3, 8, 8, requires_grad=True)
        model(x).square().mean().backward()
        assert x.grad is not None
        return [x.detach(), x.grad]

    def functional(met: bool) -> torch.Tensor:
        torch.manual_seed(0)
        model, x = nn.Conv2d(3, 4, 3), torch.rand(2, 3, 8, 8)
        if met:
            model(x)
        given: torch.Tensor = torch.func.grad(lambda x: model(x).square().mean())(x)
        return given

    def raising() -> torch.Tensor:
        class Refuses(Masks):
            def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
                super().forward(x)
                raise ValueError

        torch.manual_seed(0)
        x = torch.rand(2, 3, 8, 8)
        with torch.no_grad(), pytest.raises(ValueError):
            Refuses()(x)
        return x

    def twice() -> torch.Tensor:
        class Sums(Masks):
            def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
                x.mul_(3)
                return self.body(x + other)

        torch.manual_seed(0)
        model, x = Sums(), torch.rand(2, 3, 8, 8)
        return model(x, x[:, :1]).detach()

    plain, after, clamped, given = run(), served(), attacked(), functional(True)
    refused, summed = raising(), twice()
    with applied("channels_last") as said:
        torch.testing.assert_close(raising(), refused)
        torch.testing.assert_close(twice(), summed)
        torch.testing.assert_close(run(), plain)
        assert torch.equal(served(), after)
        torch.testing.assert_close(attacked(), clamped)
        torch.testing.assert_close(functional(True), given)
        torch.testing.assert_close(functional(False), given)
    assert said


def test_a_forward_that_writes_into_an_image_is_compiled_with_its_channels_last() -> None:
    class Masks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(3)
            return self.body(x)

    def run() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, x = Masks(), torch.rand(2, 3, 8, 8)
        model.compile(backend="eager", fullgraph=True)
        return [model(x).detach(), x]

    plain = run()
    with applied("channels_last") as said:
        torch.testing.assert_close(run(), plain)
    assert said


def gradient_of(parameter: Any) -> Any:
    """As the optimizer finds it."""
    return torch._C.TensorBase.grad.__get__(parameter)  # type: ignore[attr-defined]


def test_embeddings_hand_on_sparse_gradients_where_the_update_is_the_same() -> None:
    def trained(remedy: bool, **fields: Any) -> tuple[torch.Tensor, dict[str, str]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **fields)
        with applied("sparse_gradient") if remedy else contextlib.nullcontext({}) as said:
            for _ in range(4):
                step(model, optimizer, torch.tensor([1, 2, 2]))
            assert not remedy or bool(said) == gradient_of(model[0].weight).is_sparse
        assert not model[0].sparse and not model[0].weight.grad.is_sparse
        return model[0].weight.detach(), said

    plain, found = trained(False)[0], trained(True)
    torch.testing.assert_close(found[0], plain)
    assert found[1] == {"sparse_gradient": "20 rows"}
    assert trained(True, momentum=0.9)[1] == {}


@pytest.mark.parametrize("kinds", [{}, {"optimizer": torch.optim.Adagrad}, {"often": True}, {"fused": True},
                                   {"hook": True}])  # fmt: skip
def test_embeddings_stay_dense_where_sparse_rows_are_refused(kinds: dict[str, Any]) -> None:
    def clamp(gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clamp(-0.01, 0.01)

    def trained(
        optimizer: Any = torch.optim.SGD, hook: bool = False, often: bool = False, **fields: Any
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(20, 4, scale_grad_by_freq=often), nn.Linear(4, 2))
        used, asked = optimizer(model.parameters(), lr=0.1, **fields), []
        for number in range(5):
            if number == (0 if hook else 3):
                model[0].weight.register_hook(clamp)
            step(model, used, torch.tensor([1, 2, 2]))
            loss = model(torch.tensor([3])).square().sum()
            asked += [each.max() for each in torch.autograd.grad(loss, model.parameters())]
            for part in model:
                edge = torch.autograd.graph.get_gradient_edge(part.weight)
                asked += [each.max() for each in torch.autograd.grad(model(torch.tensor([3])).square().sum(), edge)]
        return model[0].weight.detach(), asked

    plain, register = trained(**kinds), torch.Tensor.register_hook
    with applied("sparse_gradient") as said:
        torch.testing.assert_close(trained(**kinds), plain)
    assert bool(said) == (kinds.keys() <= {"optimizer"}) and torch.Tensor.register_hook is register


@pytest.mark.skipif("dict" not in str(inspect.signature(torch.autograd.grad)), reason="this torch takes no names")
def test_sparse_gradients_that_are_asked_for_by_name_come_by_name() -> None:
    model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with applied("sparse_gradient") as said:
        for _ in range(3):
            step(model, optimizer, torch.tensor([1, 2, 2]))
        found = torch.autograd.grad(model(torch.tensor([3])).sum(), {"a": model[0].weight, "b": model[1].weight})
        assert said and {name: each.shape for name, each in found.items()} == {"a": (20, 4), "b": (2, 4)}
        assert not found["a"].is_sparse
        step(model, optimizer, torch.tensor([1, 2, 2]))
        model.share_memory()  # torch has none for what is sparse


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_embeddings_are_dense_again_for_an_optimizer_that_computes_otherwise(kind: str) -> None:
    def trained() -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(8):
            if number == 4:
                optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, weight_decay=0.1)
            step(model, optimizer, torch.tensor([1, 2, 2]))
        assert not model[0].weight.grad.is_sparse
        return model[0].weight.detach()

    plain = trained()
    with applied("sparse_gradient") as said:
        torch.testing.assert_close(trained(), plain)
    assert said


def test_embeddings_are_dense_again_once_their_optimizer_computes_otherwise() -> None:
    def trained() -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(8):
            if number == 4:
                optimizer.param_groups[0]["weight_decay"] = 0.1
            step(model, optimizer, torch.tensor([1, 2, 2]))
        return model[0].weight.detach()

    plain = trained()
    with applied("sparse_gradient") as said:
        torch.testing.assert_close(trained(), plain)
    assert said


def test_embeddings_that_another_optimizer_holds_from_the_beginning_stay_dense() -> None:
    model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
    with applied("sparse_gradient") as said:
        later = torch.optim.AdamW(model.parameters(), lr=0.1)
        for optimizer in (torch.optim.SGD(model.parameters(), lr=0.1), later):
            step(model, optimizer, torch.tensor([1, 2, 2]))
            step(model, optimizer, torch.tensor([1, 2, 2]))
    assert not said


def test_a_gradient_at_hand_is_dense_for_an_optimizer_that_comes_between_backward_and_step() -> None:
    model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    with applied("sparse_gradient"):
        for _ in range(3):
            step(model, optimizer, torch.tensor([1, 2, 2]))
        assert gradient_of(model[0].weight).is_sparse
        torch.optim.AdamW(model.parameters(), lr=0.1).step()


READERS: dict[str, Any] = {
    "norm": lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.01),
    "value": lambda parameters: nn.utils.clip_grad_value_(parameters, 0.01),
    "flat": lambda parameters: torch.cat([p.grad.flatten() for p in parameters]),
    "numpy": lambda parameters: [torch.from_numpy(p.grad.numpy()).clone() for p in parameters],
    "written": lambda parameters: [p.grad.clamp_(-0.01, 0.01) for p in parameters],
}


@pytest.mark.parametrize("how", READERS)
def test_who_reads_the_gradient_of_an_embedding_later_finds_it_dense(how: str) -> None:
    def trained() -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for number in range(6):
            optimizer.zero_grad()
            model(torch.tensor([1, 2, 2])).square().mean().backward()
            found += [READERS[how](list(model.parameters()))] if number == 3 else []
            optimizer.step()
        return [*found, gradient_of(model[0].weight).to_dense(), *(p.detach() for p in model.parameters())]

    plain = trained()
    with applied("sparse_gradient") as said:
        found = trained()
    assert said and "grad" not in vars(torch.Tensor)
    torch.testing.assert_close(found, plain)


def test_gradients_that_the_program_wants_sparse_stay_so() -> None:
    theirs, ours = nn.Embedding(20, 4, sparse=True), nn.Embedding(20, 4)
    optimizer = torch.optim.SGD([theirs.weight, ours.weight], lr=0.1)
    with applied("sparse_gradient") as said:
        for _ in range(4):
            optimizer.zero_grad()
            for each in (theirs, ours):
                each(torch.tensor([1, 2, 2])).square().mean().backward()
            optimizer.step()
        assert said and gradient_of(ours.weight).is_sparse
        assert [each.weight.grad.is_sparse for each in (theirs, ours) if each.weight.grad is not None] == [True, False]


def filed(model: Any) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), filed])
def test_a_copy_of_a_model_has_dense_gradients(copied: Callable[[Any], Any]) -> None:
    model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with applied("sparse_gradient") as said:
        for _ in range(3):
            step(model, optimizer, torch.tensor([1, 2, 2]))
        assert said and gradient_of(model[0].weight).is_sparse
        other = copied(model)
        step(other, torch.optim.Adam(other.parameters()), torch.tensor([1, 2, 2]))
        assert not gradient_of(other[0].weight).is_sparse and "sparse" not in str(other)
    assert str(model) == str(other)


def test_what_the_program_says_of_an_embedding_itself_stays() -> None:
    model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with applied("sparse_gradient"):
        for _ in range(3):
            step(model, optimizer, torch.tensor([1, 2, 2]))
        assert model[0].sparse and not nn.Embedding(3, 4).sparse
        model[0].sparse = True
    assert model[0].sparse and "sparse" not in vars(nn.Embedding)


@pytest.mark.parametrize("compiles", [
    lambda model: torch.compile(model, backend="eager", fullgraph=True), torch.jit.script,
], ids=["compiled", "script"])  # fmt: skip
def test_an_embedding_that_is_compiled_hands_on_sparse_gradients(compiles: Callable[[Any], Any]) -> None:
    model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with applied("sparse_gradient"):
        for _ in range(3):
            step(model, optimizer, torch.tensor([1, 2, 2]))
        for _ in range(2):
            step(compiles(model), optimizer, torch.tensor([1, 2, 2]))
            assert gradient_of(model[0].weight).is_sparse
    step(compiles(model), optimizer, torch.tensor([1, 2, 2]))
    assert not gradient_of(model[0].weight).is_sparse
    torch._dynamo.reset()


def test_an_embedding_that_is_parametrized_is_not_computed_for_a_look() -> None:
    class Counted(nn.Module):
        num = 0

        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            self.num += 1
            return weight * 2

    model, counted = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2)), Counted()
    nn.utils.parametrize.register_parametrization(model[0], "weight", counted)
    optimizer, before = torch.optim.SGD(model.parameters(), lr=0.1), counted.num
    with applied("sparse_gradient"):
        for number in range(1, 4):
            step(model, optimizer, torch.tensor([1, 2, 2]))
            model[1].weight.register_hook(lambda gradient: gradient)
            assert counted.num == before + number


def test_embeddings_stay_dense_where_several_processes_reduce_gradients() -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        with applied("sparse_gradient") as said:
            model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
            parallel = nn.parallel.DistributedDataParallel(model)
            optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
            for _ in range(3):
                step(parallel, optimizer, torch.tensor([1, 2, 2]))
        assert not said
    finally:
        torch.distributed.destroy_process_group()


def test_float64_becomes_float32() -> None:
    model = nn.Linear(3, 3).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with applied("float32"):
        step(model, optimizer, torch.ones(2, 3, dtype=torch.float64))
        assert model.weight.dtype == torch.float32 and model.weight.grad.dtype == torch.float32


def test_the_collector_leaves_alone_what_stays() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with applied("gc_freeze"):
        nn.Linear(1, 1)(torch.ones(1))
        assert gc.get_freeze_count() > before[1] and gc.get_threshold()[0] > before[0][0]
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


@pytest.mark.parametrize("when", ["before", "after"])
def test_thresholds_that_the_program_sets_stay(when: str) -> None:
    before, own = gc.get_threshold(), (900, 9, *gc.get_threshold()[2:])
    try:
        with applied("gc_freeze"):
            for each in ("before", "after"):
                if each == when:
                    gc.set_threshold(*own)
                nn.Linear(1, 1)(torch.ones(1))
            assert (gc.get_threshold() == own) == (when == "after")
        assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)


def test_a_full_collection_that_comes_by_itself_finds_all() -> None:
    before = gc.get_threshold()
    try:
        with applied("gc_freeze"):
            nn.Linear(1, 1)(torch.ones(1))
            gc.set_threshold(100, 1, 1)
            if not gc.get_threshold()[2]:
                pytest.skip("this interpreter makes none by itself")
            num = gc.get_freeze_count()
            kept = [[each] for each in range(num)]  # it looks at all once there is a quarter more
            assert len(kept) == num > 0 and gc.get_freeze_count() == 0
    finally:
        gc.set_threshold(*before)


def test_callbacks_of_the_collector_that_the_program_has_emptied_stay_so() -> None:
    before, num = gc.callbacks[:], gc.get_freeze_count()
    try:
        with applied("gc_freeze"):
            nn.Linear(1, 1)(torch.ones(1))
            gc.callbacks.clear()
            nn.Linear(1, 1)(torch.ones(1))
            assert not gc.callbacks
        assert gc.get_freeze_count() == num
    finally:
        gc.callbacks[:] = before


MEETS = """
import ctypes, gc, sys
from torch import nn
import torch
from tests.remedies.test_effects import applied

class Meter:
    def __init__(self, name):
        self.name, self.me = name, self

    def __del__(self):
        print(self.name)

first, last = Meter("first"), Meter("last")
held = applied("gc_freeze")
ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))  # it never leaves
if sys.argv[2:]:
    held.__enter__()
nn.Linear(1, 1)(torch.ones(1))
first = None
for _ in range(3):
    nn.Linear(1, 1)(torch.ones(1))
    if sys.argv[1] == "collects":
        gc.collect()
        gc.collect(0)
print("end")
"""


@pytest.mark.parametrize("collects", ["collects", "does not"])
def test_finalizers_speak_where_the_program_collects_and_in_its_end(collects: str) -> None:
    """Of what was there before: frozen, it was out of the reach of both."""

    def printed(*words: str) -> str:
        done = subprocess.run([sys.executable, "-c", MEETS, collects, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    plain = printed()
    assert plain.split() == (["first", "end", "last"] if collects == "collects" else ["end", *plain.split()[1:]])
    assert set(plain.split()[-2:]) > {"last"} and printed("frozen") == plain


def test_who_took_collect_by_name_thaws_too() -> None:
    by_name = gc.collect
    with applied("gc_freeze"):
        nn.Linear(1, 1)(torch.ones(1))
        assert gc.get_freeze_count() > 0
        by_name()
        assert gc.get_freeze_count() == 0
        nn.Linear(1, 1)(torch.ones(1))
        assert gc.get_freeze_count() == 0, "the program collects itself"


def test_the_collector_is_left_alone_where_the_program_has_frozen_before() -> None:
    gc.freeze()
    try:
        with applied("gc_freeze") as said:
            nn.Linear(1, 1)(torch.ones(1))
        assert not said and gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_what_is_garbage_already_is_not_frozen() -> None:
    spoken: list[str] = []

    class Garbage:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            spoken.append("gone")

    Garbage()
    with applied("gc_freeze"):
        nn.Linear(1, 1)(torch.ones(1))
        assert spoken == ["gone"]


def test_a_model_in_half_precision_gives_what_it_gave() -> None:
    model, x = nn.Linear(4, 4).bfloat16(), torch.ones(2, 4, dtype=torch.bfloat16)
    with applied("bf16_autocast") as said:
        assert model(x).dtype == torch.bfloat16 and not said


def test_what_the_program_freezes_itself_stays_frozen() -> None:
    with applied("gc_freeze"):
        nn.Linear(1, 1)(torch.ones(1))
        assert gc.get_freeze_count() > 0 and gc.collect(1) >= 0 and gc.get_freeze_count() > 0
        gc.collect()
        assert gc.get_freeze_count() == 0
        gc.freeze()
        gc.collect()
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() > 0
    gc.unfreeze()


def test_deterministic_mode_goes_off_and_comes_back() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with applied("deterministic_off"):
            nn.Linear(1, 1)(torch.ones(1))
            assert not torch.are_deterministic_algorithms_enabled()
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_batch_norm_is_folded_in_evaluation_only() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5), nn.BatchNorm1d(5))
    x = torch.randn(16, 3, 8, 8)
    model(x)
    with applied("fold_batch_norm") as said:
        model(x)
        assert not said
    expected = model.eval()(x).detach()
    with applied("fold_batch_norm") as said:
        model(x)
        assert not said, "gradients are recorded: of which weights they are asked nobody knows"
    with torch.no_grad(), applied("fold_batch_norm") as said:
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
        assert said == {"fold_batch_norm": "2 layers"}
    assert torch.equal(model(x), expected)


def test_linear_layers_are_quantised_and_put_back() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).eval(), torch.randn(4, 32)
    expected = model(x)
    with applied("int8_dynamic") as said, torch.no_grad():
        found = model(x)
    assert said == {"int8_dynamic": "2 layers"}
    assert 0 < ((found - expected).norm() / expected.norm()).item() < 0.05
    assert torch.equal(model(x), expected)


def test_workers_are_as_many_as_asked_for() -> None:
    with applied("loader_workers") as said:
        loader = DataLoader([1, 2, 3])
        assert loader.num_workers > 0 and loader.persistent_workers and said
    with applied("one_worker"):
        assert DataLoader([1, 2, 3], num_workers=4).num_workers == 1
        loader = DataLoader([1, 2, 3])
        assert loader.num_workers == 1 and loader.persistent_workers
        assert sorted(torch.cat(list(loader))) == [1, 2, 3]
    assert DataLoader([1, 2, 3]).num_workers == 0


@pytest.mark.parametrize(
    ("code", "wait", "workers", "expected"),
    [("BRR401", 30, 0, (7, 7)), ("BRR405", 30, 2, (0, 0)), ("BRR406", 80, 8, (10, 20))],
)
def test_one_worker_promises_what_the_model_says_of_it(
    code: str, wait: int, workers: int, expected: tuple[float, float]
) -> None:
    evidence = {"num_workers": Quantity(workers, "1"), "saved_by_one": Quantity(7, "ns")}
    finding = Finding(code, "name", "data", "warning", Saving(10, 20, wait), "m", evidence=evidence)
    step = Step(10, 120, 100)
    report = Report(
        verdict=Verdict("data", ""), step=step, findings=(finding,), ledger=(Account("data_wait", wait, 0.5),)
    )
    found = registry.remedy("one_worker").predicts(report)
    assert (found.low_ns, found.expected_ns) == expected and found.ceiling_ns == (wait if any(expected) else 0)


def test_one_worker_has_a_core_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        for threads, left in ((4, 3), (2, 2), (1, 1)):  # of four cores
            torch.set_num_threads(threads)
            monkeypatch.setattr("gobrrr.capture.steps.vitals.cores", lambda: 4)
            with applied("one_worker") as said:
                DataLoader([1])
                assert ("3 threads" in said["one_worker"]) == (left == 3)
                DataLoader([2])
                assert torch.get_num_threads() == left, "once"
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_one_worker_reads_an_iterable_dataset_once() -> None:
    class Stream(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[int]:
            yield from range(5)

    with applied("one_worker") as said:
        loader = DataLoader(Stream(), batch_size=2)
        assert said and torch.cat(list(loader)).tolist() == list(range(5))
        assert DataLoader(Stream(), num_workers=2).num_workers == 2, "each of them reads it, and its samples come twice"


def language_model(**fields: Any) -> tuple[Any, torch.Tensor]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=5000, n_positions=32, n_embd=32, n_layer=2, n_head=2, **fields)
    return transformers.GPT2LMHeadModel(config).train(), torch.randint(0, 5000, (3, 16))


def loss_and_gradients(model: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("name", ["chunked_loss", "pad_vocabulary", "activation_checkpointing"])
def test_a_language_model_of_somebody_else_gives_the_same_loss_and_gradients(name: str) -> None:
    model, ids = language_model()
    expected = loss_and_gradients(model, ids)
    with applied(name) as said:
        found = loss_and_gradients(model, ids)
        assert name in said
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(expected, loss_and_gradients(model, ids), strict=True))


def test_attention_of_a_model_of_somebody_else_is_switched_and_switched_back() -> None:
    model, ids = language_model(attn_implementation="eager", attn_pdrop=0.0)
    expected = loss_and_gradients(model, ids)
    with applied("sdpa_attention") as said:
        found = loss_and_gradients(model, ids)
        assert said == {"sdpa_attention": "GPT2LMHeadModel, eager before"}
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-6)
    assert model.config._attn_implementation == "eager"


def test_gradients_of_float16_are_scaled_and_come_out_unscaled() -> None:
    """A loss so small that its gradients would vanish in float16; clipping and accumulation see true gradients."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4)), torch.randn(8, 16)
    inside: list[torch.Tensor] = []
    model[0].register_full_backward_hook(lambda module, given, came: inside.append(came[0]))

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        for _ in range(2):
            (1e-7 * model(x).square().mean()).backward()
        return [p.grad.clone() for p in model.parameters()]

    expected = gradients()
    with applied("float16_autocast") as said:
        found = gradients()
    assert said == {"float16_autocast": "Sequential"} and inside[-1].dtype == torch.float16
    for a, b in zip(expected, found, strict=True):
        assert ((a - b).norm() / a.norm()).item() < 5e-3
    with torch.autocast("cpu", torch.float16):  # what scaling is for
        unscaled = gradients()
    assert any(((a - b).norm() / a.norm()).item() > 0.05 for a, b in zip(expected, unscaled, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(expected, gradients(), strict=True))


def test_an_update_that_overflows_is_passed_over_with_half_the_scale() -> None:
    from gobrrr.remedies.precision.precision import FIRST_SCALE, GradientScaling

    model = nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scaling = GradientScaling()
    scaling.install()
    try:
        scaling.divide_gradients(model)
        scaling.watch(optimizer)
        before = model.weight.detach().clone()
        (model(torch.ones(2, 3)).sum() * float("inf")).backward()
        optimizer.step()
        assert torch.equal(model.weight, before) and scaling.scale == FIRST_SCALE / 2
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        assert torch.equal(model.weight.grad, torch.full((3, 3), 2.0))
        optimizer.step()
        assert not torch.equal(model.weight, before)
        gradient = torch.autograd.grad(model(torch.ones(2, 3)).sum(), model.weight)[0]
        assert torch.equal(gradient, torch.full((3, 3), 2.0))
    finally:
        scaling.remove()


def test_the_scale_grows_as_torchs_own_does() -> None:
    from gobrrr.remedies.precision import precision

    scaler = torch.amp.GradScaler("cpu")
    assert scaler.get_scale() == precision.FIRST_SCALE and scaler.get_growth_factor() == precision.GROWTH
    assert scaler.get_backoff_factor() == precision.DECAY and scaler.get_growth_interval() == precision.GROW_AFTER


def test_a_program_under_autocast_keeps_its_own() -> None:
    model = nn.Linear(4, 4)
    with applied("float16_autocast") as said, torch.autocast("cpu", torch.bfloat16):
        assert model(torch.ones(2, 4)).dtype == torch.bfloat16 and not said


def test_a_compiled_model_keeps_half_of_its_activations() -> None:
    from torch._functorch import config

    torch.manual_seed(0)
    model, x = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(3)]), torch.randn(8, 32)

    def saved() -> int:
        num = [0]

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            num[0] += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(x).sum().backward()
        return num[0]

    with applied("compile"):
        plain = saved()
    torch._dynamo.reset()
    with applied("compile_memory_budget") as said:
        assert config.activation_memory_budget == 0.5
        assert saved() < plain and "compile_memory_budget" in said
    assert config.activation_memory_budget == 1.0


def test_threads_that_wait_sleep_soon_where_others_want_the_cores() -> None:
    """What it says is asked of OpenMP itself, which prints its settings."""
    import subprocess
    import sys

    environment = registry.environment(["short_wait"])
    code = "import torch; torch.ones(9, 9) @ torch.ones(9, 9)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env={**os.environ, **environment, "OMP_DISPLAY_ENV": "VERBOSE"},
    )  # fmt: skip
    assert done.returncode == 0 and "GOMP_SPINCOUNT = '1000'" in done.stderr.replace('"', "'"), done.stderr


def test_threads_are_pinned_before_the_process_starts() -> None:
    import subprocess
    import sys

    environment = registry.environment(["thread_affinity"])
    assert environment == {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}
    code = "import os, torch; torch.ones(9, 9) @ torch.ones(9, 9); print(len(os.sched_getaffinity(0)))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0 and int(done.stdout) <= 2, done.stderr  # one core; two threads where it has those


@pytest.mark.parametrize("compiles", [lambda model: torch.compile(model, backend="eager"), lambda model: model])
def test_a_model_that_the_program_compiles_is_met_as_any_other(compiles: Any) -> None:
    seen: list[Any] = []
    seams = Seams()
    seams.at_model(seen.append)
    install(seams, [])
    try:
        model = compiles(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        for _ in range(2):
            model(torch.ones(2, 4))
    finally:
        seams.remove()
    assert seen == [model]
    torch._dynamo.reset()


def test_bf16_takes_hold_in_what_the_program_compiles() -> None:
    torch.manual_seed(0)
    model, x = torch.compile(nn.Linear(8, 8), backend="eager"), torch.randn(2, 8)
    expected = model(x)
    with applied("bf16_autocast") as said:
        found = model(x)
    assert said and not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    assert torch.equal(model(x), expected)
    torch._dynamo.reset()


def test_a_fused_update_ends_where_memory_lies_otherwise() -> None:
    """Its kernel on a CPU pairs elements in the order of memory: those of a state with another layout are others."""

    def resumed(remedy: bool) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        step(model, optimizer, torch.randn(4, 3, 3, 3))
        kept = copy.deepcopy(optimizer.state_dict())
        model.to(memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        optimizer.load_state_dict(kept)
        with applied("fused_optimizer") if remedy else contextlib.nullcontext({}) as said:
            for _ in range(5):
                step(model, optimizer, torch.randn(4, 3, 3, 3))
            assert bool(said) == remedy
            assert not optimizer.param_groups[0].get("fused")
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    assert torch.equal(resumed(True), resumed(False))


@pytest.mark.parametrize("what", ["gradient", "parameter"])
def test_a_fused_update_ends_where_a_layout_changes_later(what: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with applied("fused_optimizer"):
        for _ in range(5):
            step(model, optimizer, torch.randn(4, 3, 3, 3))
        assert optimizer.param_groups[0]["fused"]
        if what == "parameter":
            model.to(memory_format=torch.channels_last)
            optimizer.zero_grad()
            model(torch.randn(4, 3, 3, 3)).sum().backward()
        else:
            model[0].weight.grad = torch.ones(8, 3, 3, 3).contiguous(memory_format=torch.channels_last)
        optimizer.step()
        assert not optimizer.param_groups[0].get("fused")


def unfrozen_and_updated(make: Any, closure: bool) -> tuple[list[torch.Tensor], Any]:
    torch.manual_seed(0)
    body, head = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 1)
    model, x = nn.Sequential(body, head), torch.randn(8, 4)
    optimizer = make(model.parameters())

    def gradients() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for number in range(6):
        body.requires_grad_(number > 2)
        if closure:
            optimizer.step(gradients)
        else:
            gradients()
            optimizer.step()
    return [p.detach() for p in model.parameters()], optimizer


@pytest.mark.parametrize("closure", [False, True])
@pytest.mark.parametrize(
    ("make", "stays"),
    [
        (functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1), True),
        (functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True), True),
        (functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, dampening=0.5), False),
        (functools.partial(torch.optim.SGD, lr=0.1), True),
        (functools.partial(torch.optim.AdamW, lr=0.1), True),
        (functools.partial(torch.optim.Adagrad, lr=0.1), True),
    ],
)
def test_a_fused_update_takes_a_parameter_whose_first_gradient_is_late(make: Any, stays: bool, closure: bool) -> None:
    expected, _ = unfrozen_and_updated(make, closure)
    with applied("fused_optimizer") as said:
        found, optimizer = unfrozen_and_updated(make, closure)
        assert said and bool(optimizer.param_groups[0]["fused"]) == stays
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("given", [(), (None,)], ids=["nothing", "no closure"])
@pytest.mark.parametrize("dampening", [0.0, 0.5])
def test_a_fused_update_leaves_alone_what_gets_no_gradient(dampening: float, given: tuple[None, ...]) -> None:
    used, unused = nn.Linear(4, 1), nn.Linear(4, 1)
    parameters = [*used.parameters(), *unused.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=dampening)
    with applied("fused_optimizer"):
        for _ in range(3):
            optimizer.zero_grad()
            used(torch.ones(2, 4)).sum().backward()
            optimizer.step(*given)
        assert optimizer.param_groups[0]["fused"] and not any(each in optimizer.state for each in unused.parameters())


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("key", ["lr", "betas"])
def test_updates_by_a_rate_that_is_a_tensor_stay_a_loop(key: str, late: bool) -> None:
    """torch refuses such over lists."""
    model = nn.Linear(3, 3)
    value = torch.tensor(0.01) if key == "lr" else (torch.tensor(0.9), torch.tensor(0.99))
    optimizer = torch.optim.Adam(model.parameters(), **({} if late else {key: value}))
    group = optimizer.param_groups[0]
    with applied("foreach_optimizer") as said:
        step(model, optimizer, torch.ones(2, 3))
        assert bool(said) == bool(group["foreach"]) == late
        group[key] = value
        step(model, optimizer, torch.ones(2, 3))
        assert not group["foreach"]


@pytest.mark.parametrize(("name", "key"), [("fused_optimizer", "fused"), ("foreach_optimizer", "foreach")])
def test_a_checkpoint_does_not_say_that_a_remedy_was_on(name: str, key: str) -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with applied(name):
        step(model, optimizer, torch.ones(2, 3))
        assert optimizer.param_groups[0][key] is True
        kept = optimizer.state_dict()
        assert {name: kept["param_groups"][0][name] for name in ("fused", "foreach")} == {
            "fused": None,
            "foreach": None,
        }
    assert optimizer.param_groups[0][key] is None
