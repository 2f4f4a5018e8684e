"""Each remedy on a program that has what it is for: it takes hold, does what its page says, and is gone afterwards."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

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


def step(model: nn.Module, optimizer: Any, x: torch.Tensor, **zero: Any) -> None:
    optimizer.zero_grad(**zero)
    model(x).square().mean().backward()
    optimizer.step()


def test_what_the_program_has_wrapped_does_nothing_once_the_remedies_are_gone() -> None:
    """It stays where it is, and calls ours."""
    iterator = DataLoader.__init__
    try:
        with applied("one_worker"):
            loaders = DataLoader.__init__
            DataLoader.__init__ = lambda *args, **kwargs: loaders(*args, **kwargs)
            assert DataLoader([1]).num_workers == 1
        assert DataLoader([1]).num_workers == 0
    finally:
        DataLoader.__init__ = iterator


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


def test_hooks_that_are_put_on_a_compiled_model_later_are_called() -> None:
    import torch._dynamo.config as dynamo

    before = dynamo.skip_nnmodule_hook_guards
    model, x, seen = nn.Sequential(nn.Linear(4, 12), nn.Tanh()).eval(), torch.randn(2, 3, 4), []
    with applied("compile") as said, torch.no_grad():
        expected = model(x)
        assert said and model._compiled_call_impl is not None
        model[0].register_forward_hook(lambda module, given, output: seen.append(output))
        model.register_forward_hook(lambda module, given, output: 2 * output)
        torch.testing.assert_close(model(x), 2 * expected)
        assert len(seen) == 1
    assert dynamo.skip_nnmodule_hook_guards == before


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
    compile_in_place(model, seams)
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


def test_a_model_in_half_precision_gives_what_it_gave() -> None:
    model, x = nn.Linear(4, 4).bfloat16(), torch.ones(2, 4, dtype=torch.bfloat16)
    with applied("bf16_autocast") as said:
        assert model(x).dtype == torch.bfloat16 and not said


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


def test_what_the_program_sets_before_its_first_forward_is_switched_as_well() -> None:
    with applied("deterministic_off") as said:
        torch.use_deterministic_algorithms(True)
        nn.Linear(1, 1)(torch.ones(1))
        assert said and not torch.are_deterministic_algorithms_enabled()
    assert torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)


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


def test_a_language_model_of_somebody_else_gives_the_same_loss_and_gradients() -> None:
    model, ids = language_model()
    expected = loss_and_gradients(model, ids)
    with applied("activation_checkpointing") as said:
        found = loss_and_gradients(model, ids)
        assert said
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(expected, loss_and_gradients(model, ids), strict=True))


class Block(nn.Module):
    """A block with dropout, as people write them."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(16, 64), nn.Linear(64, 16), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return x + scale * self.drop(self.down(torch.relu(self.up(x))))


def kept_bytes(model: nn.Module, x: torch.Tensor) -> tuple[int, list[torch.Tensor]]:
    """Bytes that a forward keeps for backward, and the gradients, of one seed."""
    kept = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    torch.manual_seed(3)
    model.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(x).square().mean()
    loss.backward()
    return kept, [param.grad.clone() for param in model.parameters() if param.grad is not None]


def test_blocks_that_repeat_are_computed_again_with_the_same_dropout() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Sequential(*[Block() for _ in range(4)]), nn.Linear(16, 1))
    x = torch.randn(32, 8)
    plain, expected = kept_bytes(model, x)
    with applied("activation_checkpointing") as said:
        kept, found = kept_bytes(model, x)
        assert said == {"activation_checkpointing": "4 blocks of Sequential"}
    assert kept < plain / 2
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert not any("forward" in vars(block) for block in model.modules())


def test_blocks_with_running_statistics_keep_their_activations() -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(3)])
    with applied("activation_checkpointing") as said:
        model(torch.randn(4, 8)).sum().backward()
        assert not said
    assert model[0][1].num_batches_tracked == 1


def test_attention_of_a_model_of_somebody_else_is_switched_and_switched_back() -> None:
    model, ids = language_model(attn_implementation="eager", attn_pdrop=0.0)
    expected = loss_and_gradients(model, ids)
    with applied("sdpa_attention") as said:
        found = loss_and_gradients(model, ids)
        assert said == {"sdpa_attention": "GPT2LMHeadModel, eager before"}
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-6)
    assert model.config._attn_implementation == "eager"


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

    environment = registry.environment(["short_wait"])
    code = "import torch; torch.ones(9, 9) @ torch.ones(9, 9)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env={**os.environ, **environment, "OMP_DISPLAY_ENV": "VERBOSE"},
    )  # fmt: skip
    assert done.returncode == 0 and "GOMP_SPINCOUNT = '1000'" in done.stderr.replace('"', "'"), done.stderr


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


def test_a_checkpoint_does_not_say_that_the_remedy_was_on() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with applied("fused_optimizer"):
        step(model, optimizer, torch.ones(2, 3))
        assert optimizer.param_groups[0]["fused"] is True
        kept = optimizer.state_dict()["param_groups"][0]
        assert (kept["fused"], kept["foreach"]) == (None, None)
    assert optimizer.param_groups[0]["fused"] is None
