"""The guard against what it must catch, and against what it must let pass."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from gobrrr import guard
from gobrrr.capture.hooks.lookup import Patches
from gobrrr.errors import TorchMissing
from gobrrr.guard.model import observation
from gobrrr.guard.model.observation import Observation
from gobrrr.guard.reference.variants import in_float64
from gobrrr.guard.reference.watched_steps import TWIN_STEPS
from gobrrr.guard.two_runs import observe
from gobrrr.guard.watch import step_log
from gobrrr.guard.watch.dropout import same_masks_in_any_layout
from gobrrr.guard.watch.witness import REPLAYED, Witness
from tests.guard.training import STEPS, train

WRONG = [
    "gradients doubled", "gradients scaled by 0.001", "gradients zeroed", "a layer's gradient dropped",
    "a layer's gradient zeroed", "loss is NaN", "weight decay changed", "cached output", "input mutated",
    "fewer samples", "data duplicated", "stale batch norm", "frozen dropout", "attention leaks across documents",
    "wrong loss denominator",
]  # fmt: skip


class Runs:
    """The baseline's runs, made once."""

    def __init__(self) -> None:
        self.plain, self.again = observe(train), observe(train)
        self.true = guard_reference()
        self.seeds = [observe(train, seed=number) for number in (1, 2)]

    @staticmethod
    @functools.cache
    def of(fault: str = "", dtype: str = "") -> Observation:
        """A run with this fault, made once for all tests that ask for it."""
        return observe(partial(train, *filter(None, [fault]), **({"dtype": dtype} if dtype else {})))

    def judged(self, candidate: Observation, **fields) -> guard.Guarded:
        known = {"again": self.again, "reference": self.true, "seeds": self.seeds, **fields}
        return guard.judge(self.plain, candidate, **known)


def guard_reference() -> Observation:
    return observe(train, in_double=True)


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs()


def test_a_run_against_itself_is_exact(runs: Runs) -> None:
    found = runs.judged(runs.again)
    assert found.verdict == "exact" and found.green and not found.reasons


@pytest.mark.parametrize("fault", WRONG)
def test_the_guard_catches(fault: str, runs: Runs) -> None:
    found = runs.judged(runs.of(fault))
    assert found.verdict == "wrong" and found.reasons, found


@pytest.mark.parametrize("fault", [f for f in WRONG if f not in ("weight decay changed",)])
def test_it_catches_them_without_a_float64_run_too(fault: str, runs: Runs) -> None:
    assert not runs.judged(runs.of(fault), reference=None)


def test_no_loss_is_unverified(runs: Runs) -> None:
    blind = observe(partial(train, "no loss captured"))
    assert runs.judged(blind).verdict in ("unverified", "wrong") and not runs.judged(blind)
    both = guard.judge(blind, blind, again=blind, reference=blind)
    assert both.verdict == "unverified" and "no loss" in both.reasons[0]


def test_losses_one_step_apart_are_not_compared(runs: Runs) -> None:
    late = observe(partial(train, "one batch late"))
    assert not runs.judged(late)
    import msgspec

    shifted = msgspec.structs.replace(runs.plain, steps=runs.plain.steps[1:], complete=False)
    assert not runs.judged(shifted)


@pytest.mark.parametrize("change", ["fused", "foreach", "threads"])
def test_rounding_in_another_order_is_equivalent(change: str, runs: Runs) -> None:
    def changed(model, optimizer) -> None:
        for group in optimizer.param_groups:
            group.update({change: True})

    before = torch.get_num_threads()
    try:
        if change == "threads":
            torch.set_num_threads(1 if before > 1 else 2)
            found = runs.judged(observe(train))
        else:
            found = runs.judged(observe(partial(train, changed=changed)))
    finally:
        torch.set_num_threads(before)
    assert found.verdict in ("exact", "equivalent"), found


def test_a_lower_precision_is_bounded_when_it_is_asked_for(runs: Runs) -> None:
    lower = runs.of(dtype="bfloat16")
    found = runs.judged(lower, precision="bfloat16", naive=lower)
    assert found.verdict == "bounded", found
    assert runs.judged(lower).verdict in ("changed", "wrong")


HIDDEN = [
    "gradients doubled", "a layer's gradient zeroed", "stale batch norm", "attention leaks across documents",
    "wrong loss denominator", "frozen dropout",
]  # fmt: skip


@pytest.mark.parametrize("fault", HIDDEN)
def test_a_lower_precision_hides_no_fault(fault: str, runs: Runs) -> None:
    spoilt = runs.of(fault, "bfloat16")
    assert not runs.judged(spoilt, precision="bfloat16", naive=runs.of(dtype="bfloat16"))
    assert not runs.judged(spoilt, precision="bfloat16", naive=spoilt)


def test_the_first_module_to_diverge_is_named(runs: Runs) -> None:
    found = runs.judged(observe(partial(train, "attention leaks across documents")))
    assert found.first_module == "Net#0.out"


def test_an_unseeded_program_is_given_a_seed() -> None:
    runs = [observe(partial(train, seeded=False)) for _ in range(2)]
    assert guard.judge(runs[0], runs[1], again=runs[1], reference=None).verdict == "bounded"
    assert [(s.calls, s.updates) for s in runs[0].steps] == [(s.calls, s.updates) for s in runs[1].steps]


def test_a_program_that_does_not_repeat_is_unverified() -> None:
    def other() -> None:
        train(steps=3)

    def restless(state: list[int]) -> None:
        state[0] += 1
        train("one batch late" if state[0] % 2 else "", steps=4)

    state = [0]
    first, second = observe(partial(restless, state)), observe(partial(restless, state))
    found = guard.judge(first, first, again=second)
    assert found.verdict == "unverified" and any("cannot be repeated" in reason for reason in found.reasons)


def test_what_was_not_run_is_unverified(runs: Runs) -> None:
    assert guard.judge(runs.plain, runs.plain, again=None).verdict == "unverified"
    empty = Observation()
    assert guard.judge(empty, empty, again=empty).verdict == "unverified"
    short = Observation(steps=runs.plain.steps[:5], trainable=runs.plain.trainable)
    found = guard.judge(short, short, again=short, reference=short, seeds=(short,))
    assert found.verdict == "unverified" and f"{TWIN_STEPS} are needed" in found.reasons[0]


def test_compare_judges_two_callables() -> None:
    assert guard.compare(train, train).verdict == "exact"
    assert not guard.compare(train, partial(train, "gradients doubled"), float64=False)


def test_inference_is_judged_by_its_outputs() -> None:
    def infer(scale: float = 1.0) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()
        with torch.inference_mode():
            for _ in range(6):
                model(torch.randn(4, 8) * 1.0)
                if scale != 1.0:
                    model[2].weight.mul_(scale)

    assert guard.compare(infer, infer).verdict == "exact"
    found = guard.compare(infer, partial(infer, 1.5))
    assert found.verdict == "wrong", found


def functional(trains: bool = False, rate: float = 0.1) -> None:
    """Per-sample gradients and updates by hand; `trains`: beside a training as usual."""
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 2), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], one: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (one,)).square().sum()

    for _ in range(4):
        found = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, x)
        assert found["weight"].shape == (8, 2, 4)
        weights = {name: value - rate * found[name].mean(0) for name, value in weights.items()}
        if trains:
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()


def test_an_inference_part_of_which_goes_unseen_is_unverified() -> None:
    def infer() -> None:
        model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        for _ in range(4):
            model(x)
            torch.func.functionalize(torch.nn.Linear(4, 2))(x)

    seen = observe(infer)
    found = guard.judge(seen, seen, again=seen, reference=seen)
    assert found.verdict == "unverified" and any("transform" in reason for reason in found.reasons)


def test_what_transforms_give_is_compared_bit_by_bit() -> None:
    alone, slower = observe(functional), observe(partial(functional, rate=0.1 + 1e-7))
    assert [call.model for step in alone.steps for call in step.calls] == ["torch.func.vmap"] * 4
    assert guard.judge(alone, observe(functional), again=alone, reference=alone).verdict == "exact"
    for other in (slower, observe(partial(functional, rate=0.2))):
        for again in (alone, other):
            found = guard.judge(alone, other, again=again)
            assert found.verdict == "unverified" and "bit by bit" in found.reasons[0]


def test_of_a_training_gradients_and_updates_are_compared_and_not_what_transforms_give() -> None:
    beside = observe(partial(functional, True))
    assert {call.model for step in beside.steps for call in step.calls} == {"Linear#0"}
    assert guard.judge(beside, beside, again=beside, reference=beside).verdict == "exact"


class Sine(torch.nn.Module):
    """A model without parameters."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sine of `x`."""
        return x.sin()


X, Y, SINE = torch.linspace(-1, 1, 12).reshape(3, 4), torch.linspace(0, 2, 4), Sine()


@pytest.mark.parametrize("last", ["replay", "update", "call"])
def test_what_a_graph_computes_is_seen_in_what_comes_behind_it(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a training in a graph its warm-up alone is seen: that it is right says nothing."""

    class Captured:
        def replay(self) -> None:
            """As torch's, in a build with CUDA."""

    class Graph(Captured):
        def replay(self) -> None:
            super().replay()

    monkeypatch.setattr(torch._C, "_CUDAGraph", Captured, raising=False)
    own, model = vars(Captured)["replay"], torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Witness() as witness:
        for _ in range(3):
            model(torch.ones(1, 4)).sum().backward()
            if last != "update":
                optimizer.step()
            Graph().replay()
            if last == "update":
                optimizer.step()
        if last == "call":
            model(torch.ones(1, 4))
    found = witness.observation()
    assert len(found.steps) == 3 + (last == "call") and found.remarks == ((REPLAYED,) if last == "replay" else ())
    assert vars(Captured)["replay"] is own


@pytest.mark.parametrize(
    ("transform", "outermost"),
    [
        (lambda: torch.func.grad(lambda a: (SINE(a) * Y).square().sum())(X), 1),
        (lambda: torch.func.grad_and_value(lambda a: (SINE(a) * Y).square().sum())(X), 1),
        (lambda: torch.func.vmap(torch.func.vmap(lambda a, b: SINE(a) * b), (0, None))(X, Y), 1),
        (lambda: torch.func.jvp(SINE, (X,), (X,)), 1),
        (lambda: torch.func.jacrev(lambda a: SINE(a) * Y)(X), 2),
        (lambda: torch.func.hessian(lambda a: (SINE(a) * Y).sum())(X), 1),
        (lambda: torch.func.vjp(SINE, X)[1](X), 1),
        (lambda: torch.func.vmap(lambda a: a.sin())(X), 0),
    ],
)
def test_the_outermost_transform_is_one_call(transform: Callable[[], Any], outermost: int) -> None:
    plain = torch.utils._pytree.tree_leaves(transform())
    with Witness() as witness:
        seen = torch.utils._pytree.tree_leaves(transform())
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))
    found = witness.observation()
    assert len(found.steps) == outermost and found.transformed == bool(outermost) and not found.remarks


def test_a_compiled_transform_is_traced_as_if_nobody_watched() -> None:
    whole = torch.compile(torch.func.vmap(torch.func.grad(lambda a: a.sin().sum())), backend="eager", fullgraph=True)
    with Witness():
        assert torch.equal(whole(torch.zeros(3, 4)), torch.ones(3, 4))


def test_an_error_inside_of_a_transform_is_the_programs_and_leaves_nothing_behind() -> None:
    before = torch._functorch.apis.vmap_impl
    with Witness() as witness:
        with pytest.raises(ValueError, match="mine"):
            torch.func.vmap(lambda a: (_ for _ in ()).throw(ValueError("mine")))(torch.zeros(3))
        torch.nn.Linear(4, 2)(torch.zeros(1, 4))
    assert [call.model for step in witness.observation().steps for call in step.calls] == ["Linear#0"]
    assert torch._functorch.apis.vmap_impl is before


def test_an_observation_survives_its_file(runs: Runs, tmp_path: Path) -> None:
    observation.write(runs.plain, tmp_path / "seen")
    assert observation.read(tmp_path / "seen") == runs.plain


def test_no_part_of_a_watched_model_is_hooked_while_it_runs() -> None:
    """Remedies ask whether the program listens there."""

    class Asks(torch.nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert not any(part._forward_hooks or part._forward_pre_hooks for part in self.modules())
            return super().forward(x)

    with Witness() as witness:
        Asks(torch.nn.Linear(4, 2), torch.nn.ReLU())(torch.ones(1, 4))
    assert list(witness.observation().steps[0].calls[0].inside) == ["Asks#0.0", "Asks#0.1"]


def test_the_witness_leaves_nothing_behind_and_changes_nothing() -> None:
    from torch.nn import Module
    from torch.optim import optimizer

    before = [Module.__dict__["__call__"], torch.autograd.backward, torch.amp.GradScaler.scale, torch.manual_seed,
              len(optimizer._global_optimizer_pre_hooks)]  # fmt: skip

    def final(watched: bool) -> list[torch.Tensor]:
        kept = []
        run = partial(train, steps=4, changed=lambda model, _: kept.append(model))
        patches = Patches()
        same_masks_in_any_layout(patches)  # the one thing that is another in a watched run
        observe(run) if watched else run()
        patches.take_out()
        return [*kept[0].parameters(), *kept[0].buffers()]

    assert all(torch.equal(a, b) for a, b in zip(final(False), final(True), strict=True))
    after = [Module.__dict__["__call__"], torch.autograd.backward, torch.amp.GradScaler.scale, torch.manual_seed,
             len(optimizer._global_optimizer_pre_hooks)]  # fmt: skip
    assert before == after


def test_dropout_draws_the_same_masks_in_float64(runs: Runs) -> None:
    """What the float64 reference rests on: its first loss is the baseline's but for rounding."""
    assert in_float64 is not None and len(runs.true.steps) == STEPS
    assert runs.true.steps[0].losses[0] == pytest.approx(runs.plain.steps[0].losses[0], rel=1e-6)


def test_without_torch_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TorchMissing, match="torch is not installed"):
        guard.observe(lambda: None)


@pytest.mark.filterwarnings("error")
def test_what_stands_in_a_parameters_place_and_was_computed_has_no_gradient() -> None:
    """torch warns of its .grad, on the program's stderr."""
    weight = torch.ones(2, requires_grad=True)
    weight.sum().backward()
    assert step_log._has_gradient(weight) and not step_log._has_gradient(weight * 2)
