"""Evaluations without a graph: never a gradient less than the program has by itself, bit by bit."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from gobrrr.remedies import registry
from tests.remedies import test_effects

X = torch.linspace(-1, 1, 48).view(6, 8)


applied = functools.partial(test_effects.applied, "no_grad_evaluation")


has_graph = torch._C.is_grad_enabled  # type: ignore[attr-defined]
"""Under a name that is not read: a forward that asks is left alone."""


class Model(nn.Module):
    """Notes whether its forwards build a graph; its weights are tied."""

    def __init__(self, nested: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.drop, self.down = nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)
        self.down.weight = self.up.weight
        self.nested, self.graphs = nested, [False][:0]

    def forward(self, x: torch.Tensor) -> Any:
        self.graphs.append(has_graph())
        out = self.down(self.drop(torch.tanh(self.up(x)))).view(-1, 4)
        return {"logits": [out, out], "labels": out.argmax(1)} if self.nested else out


def train(model: nn.Module, optimizer: Any) -> None:
    model.train()
    optimizer.zero_grad()
    found = model(X)
    (found["logits"][0] if isinstance(found, dict) else found).square().mean().backward()
    optimizer.step()


def evaluate(model: nn.Module, batches: int = 6) -> None:
    model.eval()
    for _ in range(batches):
        model(X)


def trained_and_evaluated(nested: bool = False) -> tuple[Model, Any]:
    model = Model(nested)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer)
    evaluate(model)
    return model, optimizer


def gradients(model: nn.Module) -> list[Any]:
    return [parameter.grad for parameter in model.parameters()]


def same_with_it(run: Callable[[], list[Any]], holds: bool) -> None:
    plain = run()
    with applied() as said:
        found = run()
    assert bool(said) is holds
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(plain, found, strict=True))


@pytest.mark.parametrize("nested", [False, True])
def test_evaluations_between_trainings_go_without_a_graph(nested: bool) -> None:
    with applied() as said:
        model, optimizer = trained_and_evaluated(nested)
        train(model, optimizer)
        evaluate(model, 1)
    assert model.graphs == [True] * 4 + [False] * 3 + [True, False] and said


def test_a_model_that_is_never_trained_goes_without_a_graph() -> None:
    with applied() as said:
        model = Model()
        evaluate(model)
    assert model.graphs[3:] == [False] * 3 and said


def test_what_an_optimizer_may_hold_has_its_graphs_until_it_was_trained() -> None:
    with applied() as said:
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        evaluate(model)
        assert all(model.graphs) and not said
        train(model, optimizer)
        evaluate(model)
    assert said and not model.graphs[-1]


@pytest.mark.parametrize("nested", [False, True])
def test_a_backward_that_comes_late_finds_its_gradients_and_is_the_last_to_ask(nested: bool) -> None:
    models: list[Model] = []

    def run() -> list[Any]:
        model, optimizer = trained_and_evaluated(nested)
        models.append(model)
        optimizer.zero_grad()
        for _ in range(2):
            found = model(X)
            (found["logits"][1] if nested else found).exp().sum().backward()
        return gradients(model)

    same_with_it(run, holds=True)
    assert models[1].graphs[-3:] == [False, True, True], "and once again, with a graph"


def test_gradients_of_gradients_are_the_same_but_for_the_order_of_sums() -> None:
    def run() -> list[Any]:
        model, _ = trained_and_evaluated()
        parameters = list(model.parameters())
        first = torch.autograd.grad(model(X).exp().sum(), parameters, create_graph=True)
        return [*first, *torch.autograd.grad(first[0].square().sum(), parameters[:2])]

    plain = run()
    with applied() as said:
        found = run()
    assert said and all(torch.equal(a, b) for a, b in zip(plain[:3], found[:3], strict=True))
    torch.testing.assert_close(found[3:], plain[3:])


def test_a_backward_after_train_is_one_of_the_evaluation() -> None:
    def run() -> list[Any]:
        model, optimizer = trained_and_evaluated()
        optimizer.zero_grad()
        loss = model(X).exp().sum()
        model.train()
        loss.backward()
        assert model.training and model.drop.training
        return gradients(model)

    same_with_it(run, holds=True)


@pytest.mark.parametrize("frozen", ["up.bias", "down.bias", ""])
def test_what_was_frozen_since_has_no_gradient_and_the_rest_has(frozen: str) -> None:
    def run() -> list[Any]:
        model, optimizer = trained_and_evaluated()
        optimizer.zero_grad()
        other = nn.Parameter(torch.ones(()))
        loss = model(X).exp().sum() * other
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(frozen not in name)
        loss.backward()
        return [other.grad, *gradients(model)]

    same_with_it(run, holds=True)


def test_a_backward_under_autocast_is_one_of_a_forward_without() -> None:
    def run() -> list[Any]:
        model, optimizer = trained_and_evaluated()
        optimizer.zero_grad()
        out = model(X)
        with torch.autocast("cpu", torch.bfloat16):
            out.sum().backward()
        return gradients(model)

    same_with_it(run, holds=True)


def test_what_was_written_to_since_is_an_error_as_ever() -> None:
    with applied() as said:
        model, optimizer = trained_and_evaluated()
        loss = model(X).sum()
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert said


def test_outputs_may_be_written_to() -> None:
    def run() -> list[Any]:
        model, optimizer = trained_and_evaluated()
        optimizer.zero_grad()
        model(X).sigmoid_().sum().backward()
        return gradients(model)

    same_with_it(run, holds=True)


def test_two_forwards_before_a_backward_in_eval_mode() -> None:
    def run() -> list[Any]:
        torch.manual_seed(0)
        model = nn.Linear(8, 4).eval()
        optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1), []
        for _ in range(3):
            one, other = model(X), model(X.flip(0))
            optimizer.zero_grad()
            (one * other).sum().backward()
            found += [p.grad.clone() for p in model.parameters()]
            optimizer.step()
        return found

    same_with_it(run, holds=False)


def test_a_body_that_is_always_in_eval_mode_and_frozen_at_first() -> None:
    def run() -> list[Any]:
        torch.manual_seed(0)
        body, head = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).eval(), nn.Linear(8, 1)
        optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
        for number in range(12):
            body.requires_grad_(number >= 6)
            optimizer.zero_grad()
            head(body(X)).square().mean().backward()
            optimizer.step()
        return [*body.parameters(), *head.parameters()]

    same_with_it(run, holds=False)


def test_gradients_of_an_input() -> None:
    def run() -> list[Any]:
        model, _ = trained_and_evaluated()
        x = X.clone().requires_grad_()
        model(x).sum().backward()
        return [x.grad, *gradients(model)]

    same_with_it(run, holds=True)


@pytest.mark.parametrize("everywhere", [False, True])
def test_gradients_of_what_a_hook_was_given(everywhere: bool) -> None:
    def run() -> list[Any]:
        model, _ = trained_and_evaluated()
        seen: list[Any] = []
        listen = nn.modules.module.register_module_forward_hook if everywhere else model.up.register_forward_hook
        handle = listen(lambda module, args, output: seen.append(output) if module is model.up else None)
        try:
            return list(torch.autograd.grad(model(X).exp().sum(), seen))
        finally:
            handle.remove()

    same_with_it(run, holds=True)


class Stores(Model):
    def forward(self, x: torch.Tensor) -> Any:
        self.penalty = {"of": [super().forward(x).square().sum()]}
        return self.penalty["of"][0] * 2


class Draws(Model):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x + torch.randn_like(x))


class Moves(Model):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        self.get_buffer("seen").add_(1)
        return super().forward(x)


class Elsewhere(Model):
    def __init__(self) -> None:
        super().__init__()
        self.shift = [torch.ones(8, requires_grad=True)]

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x + self.shift[0])


class Hides(Model):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x).sum(), lambda: super(Hides, self).forward(x)


class Tagged(torch.Tensor):
    """A tensor that does things of its own."""


class Gives(Model):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x).as_subclass(Tagged)


class Asks(Model):
    """Computes something else without a graph."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(self.scaled(x))

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x if torch.is_grad_enabled() else 2 * x


class AsksItsWeights(Model):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x if self.up.weight.mul(1.0).requires_grad else 2 * x)


class Encodes(nn.Module):
    """torch's own layers take another way where nothing asks for a gradient, with zeros at padding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        return self.body(x, src_key_padding_mask=mask).mean(1)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padding_is_computed_as_it_is_with_a_graph() -> None:
    model, x, fast = Encodes().eval(), torch.randn(4, 6, 8), torch.backends.mha.get_fastpath_enabled()
    mask = torch.arange(6) >= torch.tensor([[6], [3], [1], [5]])
    plain = model(x, mask)
    with torch.no_grad():
        assert not torch.allclose(model(x, mask), plain), "torch has no other way any more, and this is no test"
    with applied() as said:
        for _ in range(6):
            model(x)
            found = model(x, mask)
    assert said and torch.equal(found, plain)
    assert torch.backends.mha.get_fastpath_enabled() == fast


def asks_elsewhere(x: torch.Tensor) -> torch.Tensor:
    return x if torch.is_grad_enabled() else 2 * x


class AsksByAFunction(Model):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(asks_elsewhere(x))


def wrapped(forward: Any) -> Any:
    @functools.wraps(forward)
    def called(self: Any, *given: Any) -> Any:
        return forward(self, *given)

    return called


class AsksBeneathAWrapper(Model):
    @wrapped
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x if torch.is_grad_enabled() else 2 * x)


class AsksByAProperty(Model):
    @property
    def factor(self) -> int:
        return 1 if torch.is_grad_enabled() else 2

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(self.factor * x)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_frozen_body_goes_its_own_way_as_ever() -> None:
    """torch's layers of which no weight asks take the other way with gradients on, too."""
    x, mask = torch.randn(4, 6, 8), torch.arange(6) >= torch.tensor([[6], [3], [1], [5]])

    class Probes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Encodes().requires_grad_(False)
            self.head = nn.Linear(8, 2)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
            return self.head(self.body(x, mask))

    model = Probes().eval()
    plain = model(x, mask)
    with applied():
        assert all(torch.equal(model(x, mask), plain) for _ in range(6))


ASKING = [Asks, AsksItsWeights, AsksByAFunction, AsksBeneathAWrapper, AsksByAProperty]


@pytest.mark.parametrize("kind", [*ASKING, Gives, Stores, Draws, Moves, Elsewhere, Hides])
def test_a_forward_that_could_not_be_made_again_is_left_alone(kind: type[Model]) -> None:
    with applied() as said:
        model = kind()
        evaluate(model)
    assert not said and all(model.graphs)


class Varies(Model):
    """Draws, drops or gives more where it is told to."""

    def forward(self, x: torch.Tensor, sample: bool = False, pair: bool = False, drop: float = 0.0) -> Any:
        out = nn.functional.dropout(super().forward(x), drop)
        out = out + torch.randn_like(out) if sample else out
        return (out, out * 2) if pair else out


class Remembers(Model):
    """Makes a buffer in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", None)

    def forward(self, x: torch.Tensor) -> Any:
        if self.places is None:
            self.places = torch.linspace(0, 1, 8)
        return super().forward(x + self.places)


def test_a_buffer_that_was_made_in_inference_mode_has_its_model_left_alone() -> None:
    model = Remembers().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.inference_mode():
        model(X)
    with applied() as said:
        train(model, optimizer)
        evaluate(model)
        assert not said and all(model.graphs[-6:])


@pytest.mark.parametrize("pair", [False, True])
def test_a_call_in_a_new_way_runs_once(pair: bool) -> None:
    def run() -> list[Any]:
        model = Varies()
        evaluate(model)
        model(X, sample=True, pair=pair)
        assert len(model.graphs) == 7
        return [torch.rand(3)]

    same_with_it(run, holds=True)


def test_a_call_that_drops_after_some_that_did_not_has_the_gradients_of_its_mask() -> None:
    def run() -> list[Any]:
        model = Varies()
        evaluate(model)
        model(X, drop=0.5).exp().sum().backward()
        return gradients(model)

    same_with_it(run, holds=True)


def test_a_model_that_is_called_in_ever_new_ways_is_left_alone() -> None:
    with applied():
        model = Varies().eval()
        for number in range(40):
            model(X, sample=None, pair=number)
        evaluate(model)
    assert all(model.graphs)


def test_a_forward_that_needs_a_graph_inside_gets_one() -> None:
    class Inner(Model):
        hooked = 0

        def forward(self, x: torch.Tensor) -> Any:
            out = super().forward(x)
            out.retain_grad()
            return out * 2

    with applied() as said:
        model = Inner()
        evaluate(model)
    assert not said and model.graphs == [True] * 3 + [False] + [True] * 3


def test_a_copy_has_its_own_forward() -> None:
    with applied():
        model, optimizer = trained_and_evaluated()
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        expected = model(X).detach().clone()
        train(model, optimizer)
        evaluate(model)
        assert all(torch.equal(each(X), expected) for each in copies)


def test_a_copy_keeps_the_forward_that_the_program_gave_it() -> None:
    with applied():
        model = Model()
        model.forward = torch.neg  # type: ignore[method-assign,assignment]
        evaluate(model)
        assert all(torch.equal(each(X), -X) for each in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))))


def test_what_is_compiled_or_traced_is_as_ever() -> None:
    with applied():
        model, _ = trained_and_evaluated()
        compiled: Any = torch.compile(Model().eval(), backend="eager", fullgraph=True)
        assert compiled(X).requires_grad
        assert torch.jit.trace(model, X)(X).requires_grad


class Folded(nn.Module):
    """torch multiplies in another way where the weight, which is computed, asks for no gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.gain = nn.Parameter(torch.randn(1000, 10)), nn.Parameter(torch.ones(10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x.transpose(0, 1), self.weight * self.gain)


def test_equal_bits_are_promised_only_where_torch_chooses_no_kernel_by_gradients() -> None:
    model, x = Folded().eval(), torch.randn(1, 9, 1000)
    plain = model(x).detach()
    with applied() as said:
        for _ in range(6):
            found = model(x).detach()
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-4)
    assert said and (torch.equal(found, plain) or registry.remedy("no_grad_evaluation").safety != "exact")
