"""Layers whose flag says that they are to be checkpointed run once: the same numbers, bit for bit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils import checkpoint as checkpointing  # noqa: E402

from gobrrr.remedies import registry  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402
from tests.support.patching import patched  # noqa: E402


@contextlib.contextmanager
def applied() -> Iterator[list[str]]:
    said: list[str] = []
    seams = Seams(lambda remedy, detail: said.append(remedy))
    install(seams, ["keep_activations"])
    try:
        yield said
    finally:
        seams.remove()


class Counting(nn.Module):
    """Of the program's own classes: it counts its calls."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x


class Marked(nn.Sequential):
    """Checkpointed as transformers does it: by an attribute of each layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self:
            recomputes = getattr(layer, "gradient_checkpointing", False)
            x = checkpointing.checkpoint(layer, x, use_reentrant=False) if recomputes else layer(x)
        return x


@pytest.mark.parametrize("compiled", [True, False])
def test_layers_that_are_marked_forget_it_until_it_is_over(compiled: bool) -> None:
    def gradient() -> Any:
        model.zero_grad()
        run(torch.ones(4, 8)).square().sum().backward()
        return model[0].weight.grad

    torch.manual_seed(0)
    model = Marked(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    model[0].gradient_checkpointing = model[1].gradient_checkpointing = True
    run: Any = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    expected = gradient().clone()
    with applied() as said:
        assert torch.equal(gradient(), expected)
        assert said == ["keep_activations"] and not model[0].gradient_checkpointing
    assert model[0].gradient_checkpointing and model[1].gradient_checkpointing and torch.equal(gradient(), expected)


@pytest.mark.parametrize("part", [nn.BatchNorm1d(8), Counting()])
def test_layers_that_may_move_something_stay_marked(part: nn.Module) -> None:
    model = Marked(nn.Sequential(nn.Linear(8, 8), part))
    model[0].gradient_checkpointing = True
    with applied() as said:
        model(torch.rand(4, 8)).sum().backward()
    assert not said


def test_trainers_arguments_are_patched() -> None:
    edit = registry.remedy("keep_activations").edit
    assert edit is not None
    assert "gradient_checkpointing=False" in patched('from trl import SFTConfig\nargs = SFTConfig("out")\n', [edit])
