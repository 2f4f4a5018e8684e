"""Where a backward pass leads, to a model's weights or to what it was given alone: every way to start one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from gobrrr.capture.hooks.lookup import EngineLookup
from gobrrr.capture.hooks.module_parts import Targets

torch = pytest.importorskip("torch")


def by_weights(model: Any, x: Any) -> None:
    torch.autograd.grad(model(x).sum(), list(model.parameters()))


def by_functional_weights(model: Any, x: Any) -> None:
    weights = {name: value.detach().requires_grad_() for name, value in model.named_parameters()}
    torch.autograd.grad(torch.func.functional_call(model, weights, (x,)).sum(), list(weights.values()))


def by_transform(model: Any, x: Any) -> None:
    torch.func.grad(lambda v: model(v).sum())(x)


def by_input(model: Any, x: Any) -> None:
    torch.autograd.grad(model(x).sum(), x)


def by_inputs_of_backward(model: Any, x: Any) -> None:
    torch.autograd.backward(model(x).sum(), inputs=[x])


def by_all_leaves(model: Any, x: Any) -> None:
    model(x).sum().backward()


def by_frozen(model: Any, x: Any) -> None:
    model.requires_grad_(False)
    model(x).sum().backward()


@pytest.mark.parametrize(
    ("run", "size", "to_inputs"),
    [
        (by_weights, 3, False),
        (by_functional_weights, 3, False),
        (by_transform, 3, False),
        (by_all_leaves, 3, False),
        (by_input, 3, True),
        (by_input, 4, False),  # of a weight's shape: it may stand for one
        (by_inputs_of_backward, 3, True),
        (by_frozen, 3, True),
    ],
)
def test_a_pass_leads_to_weights_unless_torch_is_told_otherwise(
    run: Callable[[Any, Any], None], size: int, to_inputs: bool
) -> None:
    assert passes(run, torch.nn.Linear(5, 4), torch.ones(size, 5, requires_grad=True)) == [to_inputs]


def test_without_a_model_a_leaf_may_be_what_is_trained() -> None:
    assert passes(lambda _, x: torch.autograd.grad((x * x).sum(), x), None, torch.ones(3, requires_grad=True)) == [
        False
    ]


def passes(run: Callable[[Any, Any], Any], model: Any, x: Any) -> list[bool]:
    """What is said of each pass that `run` starts."""
    found: list[bool] = []
    targets = Targets(lambda: [(0, model)] if model is not None else [])

    def seen() -> None:
        engine = sys._getframe(1).f_back
        assert engine is not None
        if engine.f_code.co_name == "_engine_run_backward":
            found.append(targets.are_inputs(engine, 1))

    def failed(error: BaseException) -> None:
        raise error

    lookup = EngineLookup(seen, failed)
    try:
        run(model, x)
    finally:
        lookup.remove()
    return found
