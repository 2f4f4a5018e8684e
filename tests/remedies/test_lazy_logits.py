"""Logits that stay uncomputed: the same loss and gradients as torch's own, whatever path leads there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

from gobrrr.errors import GobrrrError
from gobrrr.guard.watch.inputs import tensors_of
from gobrrr.guard.watch.witness import Witness
from gobrrr.remedies.layers import chunks as chunked
from gobrrr.remedies.layers.lazy_logits import LazyLogits, keep_heads
from tests.remedies.test_effects import applied

ROWS, WIDTH, CLASSES = 6, 5, 11


def given(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    shapes = ((2, ROWS, WIDTH), (CLASSES, WIDTH), (CLASSES,))
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)  # type: ignore[return-value]


def target() -> torch.Tensor:
    labels = torch.randint(0, CLASSES, (2, ROWS), generator=torch.Generator().manual_seed(1))
    labels[0, 2] = labels[1, 5] = -100
    return labels


PATHS = {
    "view": (lambda x: x.view(-1, CLASSES), lambda t: t.view(-1)),
    "view by tuple": (lambda x: x.view((-1, x.size(-1))), lambda t: t.view(-1)),
    "flatten": (lambda x: x.flatten(0, 1), lambda t: t.flatten()),
    "reshape": (lambda x: torch.reshape(x, (2 * ROWS, -1)), lambda t: t.flatten()),
    "shifted": (lambda x: x[..., :-1, :].contiguous().view(-1, x.shape[-1]), lambda t: t[..., 1:].reshape(-1)),
    "one sample": (lambda x: x[0].float().to(torch.float64), lambda t: t[0]),
    "materialised": (lambda x: (x * 1.0).flatten(0, 1), lambda t: t.flatten()),
    "log_softmax before": (lambda x: F.log_softmax(x, -1).flatten(0, 1), lambda t: t.flatten()),
}


def loss_and_gradients(path: str, elements: int = 0, **kwargs: Any) -> tuple[list[torch.Tensor], int]:
    """With chunks of lazy logits, without of plain ones."""
    hidden, weight, bias = given()
    uses: list[int] = []
    lazy = partial(LazyLogits.of, used=lambda: uses.append(1), elements=elements) if elements else F.linear
    logits = lazy(hidden, weight, bias)
    of_logits, of_target = PATHS[path]
    loss = F.cross_entropy(of_logits(logits), of_target(target()), **kwargs)
    (3 * loss).backward()
    return [loss.detach(), hidden.grad, weight.grad, bias.grad], len(uses)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("path", PATHS)
def test_loss_and_gradients_are_torchs_own(path: str, reduction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "FEWEST_ROWS", 5)  # ten or twelve rows make three chunks
    plain, _ = loss_and_gradients(path, reduction=reduction)
    found, uses = loss_and_gradients(path, 1, reduction=reduction)
    assert uses == (path != "materialised")
    for a, b in zip(plain, found, strict=True):
        # "one sample" goes through float32 on the plain side only
        torch.testing.assert_close(
            b, a, rtol=2e-6 if path == "one sample" else 1e-9, atol=1e-6 if path == "one sample" else 1e-12
        )


@pytest.mark.parametrize(
    "flat",
    [lambda x: x.reshape(shape=(-1, CLASSES)), lambda x: x.view(size=(-1, CLASSES)),
     lambda x: torch.reshape(x, shape=(-1, CLASSES)), lambda x: x.log_softmax(axis=-1).flatten(0, 1)],
)  # fmt: skip
def test_arguments_have_torchs_other_names_too(flat: Callable[[Any], Any]) -> None:
    hidden, weight, bias = given()
    found = F.cross_entropy(flat(LazyLogits.of(hidden, weight, bias, lambda: None)), target().flatten())
    torch.testing.assert_close(found, F.cross_entropy(flat(F.linear(hidden, weight, bias)), target().flatten()))


@pytest.mark.parametrize("num", [1, ROWS])
def test_targets_of_other_rows_are_refused_as_ever(num: int) -> None:
    """A target of one chunk's rows was taken for that of the first chunk."""
    hidden, weight, bias = given()
    logits = LazyLogits.of(hidden, weight, bias, lambda: None, elements=1).flatten(0, 1)
    with pytest.raises(ValueError, match="batch_size"):
        F.cross_entropy(logits, target().flatten()[:num])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_batch_of_which_nothing_counts_has_torchs_loss_and_no_gradient(reduction: str) -> None:
    """Its mean is NaN, and the weights went on from there as NaN; torch's gradients are zeros."""

    def run(elements: int) -> list[torch.Tensor]:
        hidden, weight, bias = given()
        found = F.linear(hidden, weight, bias)
        logits = found if not elements else LazyLogits.of(hidden, weight, bias, lambda: None, elements=elements)
        loss = F.cross_entropy(logits.flatten(0, 1), target().flatten().fill_(-100), reduction=reduction)
        loss.backward()
        return [loss.detach(), hidden.grad, weight.grad, bias.grad]

    torch.testing.assert_close(run(1), run(0), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("bad", [-1, CLASSES, CLASSES + 1])
def test_a_target_that_is_no_class_is_refused_as_ever(bad: int) -> None:
    wrong = target().flatten().clone()
    wrong[3] = bad
    said = []
    for make in (F.linear, partial(LazyLogits.of, used=lambda: None, elements=1)):
        with pytest.raises(IndexError) as raised:
            F.cross_entropy(make(*given()).flatten(0, 1), wrong)
        said.append(str(raised.value))
    assert said[0] == said[1] == f"Target {bad} is out of bounds."


@pytest.mark.parametrize(
    "kwargs", [{"label_smoothing": 0.1}, {"reduction": "none"}, {"weight": torch.ones(CLASSES).double()}]
)
def test_what_chunks_cannot_do_gets_the_logits_whole(kwargs: dict[str, Any]) -> None:
    hidden, weight, bias = given()
    logits = LazyLogits.of(hidden, weight, bias, pytest.fail).flatten(0, 1)
    found = F.cross_entropy(logits, target().flatten(), **kwargs)
    torch.testing.assert_close(
        found, F.cross_entropy(F.linear(hidden, weight, bias).flatten(0, 1), target().flatten(), **kwargs)
    )


def test_it_looks_like_the_tensor_that_it_stands_for() -> None:
    hidden, weight, bias = given()
    lazy, real = LazyLogits.of(hidden, weight, bias, pytest.fail), F.linear(hidden, weight, bias)
    assert lazy.shape == real.shape and lazy.dtype == real.dtype and lazy.size(-1) == CLASSES and len(lazy) == 2
    assert lazy.requires_grad and lazy.dim() == 3 and lazy.numel() == real.numel()
    for use in (lambda x: x.argmax(-1), lambda x: x.softmax(-1), lambda x: x[:, 0, 1], lambda x: torch.cat([x, x]),
                lambda x: x.detach().clone(), lambda x: x.transpose(1, 2), lambda x: x.view(2, -1)):  # fmt: skip
        torch.testing.assert_close(use(lazy), use(real))


def test_without_a_valid_target_the_loss_is_nan_as_torchs() -> None:
    hidden, weight, bias = given()
    nothing = torch.full((2 * ROWS,), -100)
    lazy = F.cross_entropy(LazyLogits.of(hidden, weight, bias, lambda: None).flatten(0, 1), nothing)
    assert torch.isnan(lazy) and torch.isnan(F.cross_entropy(F.linear(hidden, weight, bias).flatten(0, 1), nothing))


def test_in_bfloat16_the_error_is_no_larger_than_torchs() -> None:
    hidden, weight, bias = (t.detach() for t in given())
    labels = target().flatten()
    true = F.cross_entropy(F.linear(hidden, weight, bias).flatten(0, 1), labels)
    low = [t.bfloat16() for t in (hidden, weight, bias)]
    plain = F.cross_entropy(F.linear(*low).float().flatten(0, 1), labels)
    lazy = F.cross_entropy(LazyLogits.of(*low, lambda: None).float().flatten(0, 1), labels)  # type: ignore[misc]
    assert lazy.dtype == torch.float32 and abs(lazy - true) <= 2 * abs(plain - true) + 1e-3


def both(use: Any) -> tuple[list[torch.Tensor], list[torch.Tensor], int]:
    """What `use` gives and the gradients that it leaves, of lazy and of real logits; how often chunks were used."""
    found, used = [], 0

    def count() -> None:
        nonlocal used
        used += 1

    for lazy in (True, False):
        torch.manual_seed(0)
        hidden = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
        weight = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
        bias = torch.randn(5, dtype=torch.float64, requires_grad=True)
        logits = LazyLogits.of(hidden, weight, bias, count) if lazy else F.linear(hidden, weight, bias)
        given = use(logits, (hidden, weight, bias))
        found.append([given.detach(), *(torch.zeros(1) if p.grad is None else p.grad for p in (hidden, weight, bias))])
    return found[0], found[1], used


TARGET = torch.tensor([0, 1, 2, 3, 4, 0])


def trained(loss: torch.Tensor) -> torch.Tensor:
    loss.backward()
    return loss


def hooked(logits: Any, _: Any) -> torch.Tensor:
    logits.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    return trained(F.cross_entropy(logits.view(-1, 5), TARGET))


def hooked_after_it_was_reshaped(logits: Any, _: Any) -> torch.Tensor:
    flat = logits.view(-1, 5)
    logits.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    return trained(F.cross_entropy(flat.float().double(), TARGET))


def retained(logits: Any, _: Any) -> torch.Tensor:
    logits.retain_grad()
    trained(F.cross_entropy(logits, TARGET))
    return logits.grad


def scaled(logits: Any, _: Any) -> torch.Tensor:
    logits.div_(3.0)
    return trained(F.cross_entropy(logits, TARGET))


def banned(logits: Any, _: Any) -> torch.Tensor:
    logits[:, 4] = -1e4
    return trained(F.cross_entropy(logits.view(-1, 5), TARGET))


def banned_through_a_view(logits: Any, _: Any) -> torch.Tensor:
    logits[:, 3:].zero_()
    return trained(F.cross_entropy(logits, TARGET))


def zeroed_in_part(logits: Any, _: Any) -> torch.Tensor:
    with torch.no_grad():
        logits[2:4].fill_(0)
    return trained(F.cross_entropy(logits.view(-1, 5), TARGET))


def banned_in_what_was_reshaped(logits: Any, _: Any) -> torch.Tensor:
    logits.view(-1, 5)[:, 4] = -1e4
    return trained(F.cross_entropy(logits.reshape(-1, 5), TARGET))


def scaled_after_it_was_reshaped_and_read(logits: Any, _: Any) -> torch.Tensor:
    flat = logits.view(-1, 5)
    flat.argmax(-1)
    logits.div_(3.0)
    return trained(F.cross_entropy(flat, TARGET))


def scaled_after_it_was_copied(logits: Any, _: Any) -> torch.Tensor:
    copy = logits.float()
    logits.div_(3.0)
    return trained(F.cross_entropy(copy, TARGET))


def read_without_a_graph_and_reshaped(logits: Any, _: Any) -> torch.Tensor:
    flat = logits.view(-1, 5)
    with torch.no_grad():
        flat.argmax(-1)
    return trained(F.cross_entropy(flat, TARGET) + flat.square().mean())


def read_in_inference_mode(logits: Any, _: Any) -> torch.Tensor:
    with torch.inference_mode():
        right = (logits.view(-1, 5).argmax(-1) == TARGET).sum()
    return trained(F.cross_entropy(logits, TARGET) + 0.1 * logits.square().mean()) + right.clone()


def penalised_after_a_metric(logits: Any, _: Any) -> torch.Tensor:
    with torch.no_grad():
        right = (logits.argmax(-1) == TARGET).sum()
    return trained(F.cross_entropy(logits, TARGET) + 0.1 * logits.logsumexp(-1).square().mean()) + right


def penalised_by_its_gradient(logits: Any, given: Any) -> torch.Tensor:
    loss = F.cross_entropy(logits, TARGET, ignore_index=4)
    first = torch.autograd.grad(loss, given, create_graph=True)
    return trained(loss + sum(each.square().sum() for each in first))


def part_of_it_differentiated(logits: Any, given: Any) -> torch.Tensor:
    given[1].requires_grad_(False)
    loss = F.cross_entropy(logits, TARGET, reduction="sum")
    (first,) = torch.autograd.grad(loss, given[:1], create_graph=True)
    return trained(first.square().sum())


def nll(logits: Any, _: Any) -> torch.Tensor:
    return trained(F.nll_loss(F.log_softmax(logits, dim=1), TARGET, ignore_index=4))


def nll_of_modules(logits: Any, _: Any) -> torch.Tensor:
    return trained(nn.NLLLoss(reduction="sum")(nn.LogSoftmax(-1)(logits.view(2, 3, 5)).view(-1, 5), TARGET))


def nll_of_a_method_beside_entropy(logits: Any, _: Any) -> torch.Tensor:
    found = logits.view(2, 3, 5).log_softmax(2)
    return trained(F.nll_loss(found.reshape(-1, 5), TARGET) + (found.exp() * found).sum() + found[0, 1:].mean())


def nll_of_what_no_log_softmax_made(logits: Any, _: Any) -> torch.Tensor:
    return trained(F.nll_loss(logits, TARGET))


def nll_over_rows(logits: Any, _: Any) -> torch.Tensor:
    return trained(F.nll_loss(torch.log_softmax(logits, 0), TARGET))


def nll_in_another_dtype(logits: Any, _: Any) -> torch.Tensor:
    return trained(F.nll_loss(F.log_softmax(logits, -1, dtype=torch.float32), TARGET).double())


def nll_by_keywords(logits: Any, _: Any) -> torch.Tensor:
    return trained(F.nll_loss(torch.log_softmax(input=logits, dim=-1), TARGET))


def nll_in_a_dtype_by_position(logits: Any, _: Any) -> torch.Tensor:
    found, again = torch.log_softmax(logits, -1, torch.float32), logits.log_softmax(-1, torch.float32)
    assert found.dtype == again.dtype == torch.float32
    return trained(F.nll_loss(found + again, TARGET).double())


def nll_of_a_cast(logits: Any, _: Any) -> torch.Tensor:
    return trained(F.nll_loss(F.log_softmax(logits, -1).float(), TARGET).double())


def nll_of_what_has_no_graph(logits: Any, _: Any) -> torch.Tensor:
    with torch.no_grad():
        found = F.log_softmax(logits, -1)
    return trained(F.nll_loss(found, TARGET) + logits.square().mean())


def nll_of_what_was_hooked(logits: Any, _: Any) -> torch.Tensor:
    found = F.log_softmax(logits, -1)
    found.register_hook(lambda grad: 2 * grad)
    return trained(F.nll_loss(found, TARGET))


def nll_of_what_was_made_before_a_change(logits: Any, _: Any) -> torch.Tensor:
    found, weighted = F.log_softmax(logits, -1), F.log_softmax(logits, -1)
    with torch.no_grad():
        logits.mul_(2.0)
    return trained(F.nll_loss(found, TARGET) + weighted.square().mean())


def log_softmax_twice(logits: Any, _: Any) -> torch.Tensor:
    return trained(F.nll_loss(F.log_softmax(F.log_softmax(logits, -1), -1), TARGET))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_log_probabilities_have_the_dtype_that_they_would_have(dtype: torch.dtype) -> None:
    hidden, weight, bias = (t.detach().to(dtype).requires_grad_() for t in given())
    with torch.autocast("cpu", torch.bfloat16):
        lazy = F.log_softmax(LazyLogits.of(hidden, weight, bias, lambda: None), -1)  # type: ignore[arg-type]
        real = F.log_softmax(F.linear(hidden, weight, bias).to(dtype), -1)
    assert isinstance(lazy, LazyLogits) and lazy.dtype == real.dtype
    torch.testing.assert_close(lazy * 1.0, real, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("by_parts", [False, True])
def test_a_loss_under_autocast_is_as_wide_as_torchs(dtype: torch.dtype, by_parts: bool) -> None:
    """A loss of 10.8 was told in steps of 0.0625."""
    hidden, weight, bias = (t.detach().to(dtype).requires_grad_() for t in given())
    with torch.autocast("cpu", torch.bfloat16):
        lazy: Any = LazyLogits.of(hidden, weight, bias, lambda: None).view(6, -1)  # type: ignore[arg-type]
        real: Any = F.linear(hidden, weight, bias).to(dtype).view(6, -1)
        ours, theirs = (
            F.nll_loss(F.log_softmax(each, -1), TARGET) if by_parts else F.cross_entropy(each, TARGET)
            for each in (lazy, real)
        )
    assert type(ours) is torch.Tensor and ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


def test_targets_of_other_kinds_are_torchs_affair() -> None:
    lazy: Any = LazyLogits.of(*given(), lambda: None).view(6, -1)  # type: ignore[arg-type]
    torch.testing.assert_close(F.cross_entropy(lazy, TARGET.to(torch.uint8)), F.cross_entropy(lazy, TARGET))


@pytest.mark.parametrize(
    ("use", "chunks"),
    [
        (nll, 1), (nll_of_modules, 1), (nll_of_a_method_beside_entropy, 1), (nll_of_what_no_log_softmax_made, 0),
        (nll_over_rows, 0), (nll_in_another_dtype, 0), (nll_of_a_cast, 0), (nll_of_what_has_no_graph, 0),
            (nll_by_keywords, 0), (nll_in_a_dtype_by_position, 0),
        (nll_of_what_was_hooked, 0), (nll_of_what_was_made_before_a_change, 0), (log_softmax_twice, 0),
        (hooked, 0), (hooked_after_it_was_reshaped, 0), (retained, 0), (scaled, 0), (banned, 0),
        (banned_through_a_view, 0), (zeroed_in_part, 0), (banned_in_what_was_reshaped, 0),
        (scaled_after_it_was_reshaped_and_read, 0), (scaled_after_it_was_copied, 0),
        (read_without_a_graph_and_reshaped, 0), (read_in_inference_mode, 0),
        (penalised_after_a_metric, 0), (penalised_by_its_gradient, 1),
        (part_of_it_differentiated, 1),
    ],
)  # fmt: skip
def test_what_a_program_does_with_logits_is_done_to_them(use: Any, chunks: int) -> None:
    lazy, real, used = both(use)
    assert used == chunks
    for ours, theirs in zip(lazy, real, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=1e-6)  # some go through float32


def large_head() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4096)).double()
    return model, torch.randn(6, 4, dtype=torch.float64), torch.arange(6)


def read_after_steps(watched: bool = False) -> list[torch.Tensor]:
    """Logits, and their loss, of which the first reader comes after the update; of one forward after two."""
    model, x, y = large_head()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    read: list[torch.Tensor] = []
    kept = []
    with Witness() if watched else nullcontext():
        for _ in range(3):
            logits = model(x)
            kept.append(logits[2:])
            optimizer.zero_grad()
            F.cross_entropy(logits, y).backward()
            optimizer.step()
            read += [F.cross_entropy(logits, y).detach(), logits.detach().clone()]
    return [*read, *(each.detach().clone() for each in kept)]


@pytest.mark.parametrize("watched", [False, True])
def test_logits_that_are_read_after_a_step_are_those_of_its_beginning(watched: bool) -> None:
    expected = read_after_steps()
    with applied("chunked_loss") as said:
        found = read_after_steps(watched)
    assert "chunked_loss" in said
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def weights_gradient_of_logits_read_after_a_step() -> torch.Tensor:
    model, x, y = large_head()
    head, x = model[2], x.repeat(1, 2)
    optimizer = torch.optim.SGD(head.parameters(), 1.0)
    logits = head(x)
    F.cross_entropy(logits, y).backward(retain_graph=True)
    with torch.no_grad():
        optimizer.step()
    optimizer.zero_grad()
    logits.square().sum().backward()
    assert head.weight.grad is not None
    return head.weight.grad


def test_logits_that_are_read_after_a_step_still_lead_to_their_weights() -> None:
    expected = weights_gradient_of_logits_read_after_a_step()
    with applied("chunked_loss") as said:
        found = weights_gradient_of_logits_read_after_a_step()
    assert "chunked_loss" in said
    torch.testing.assert_close(found, expected)


def test_logits_that_outlive_the_remedy_are_those_of_their_forward() -> None:
    model, x, y = large_head()
    expected = model(x).detach().clone()
    with applied("chunked_loss") as said:
        logits = model(x)
        F.cross_entropy(logits, y).backward()
    torch.optim.SGD(model.parameters(), 1.0).step()
    assert "chunked_loss" in said
    torch.testing.assert_close(logits.detach().clone(), expected)


def test_who_looks_on_computes_nothing_for_the_program() -> None:
    logits = LazyLogits.of(*given(), lambda: None)
    part = logits[:, 2:]
    assert torch.equal(tensors_of(part)[0], F.linear(*given())[:, 2:]) and part.whole is logits.whole is None
    logits.div_(3.0)
    assert torch.equal(tensors_of(part)[0], F.linear(*given())[:, 2:] / 3.0)


def test_logits_of_a_head_that_nobody_kept_are_refused() -> None:
    hidden, weight, bias = given()
    read, late = (LazyLogits.of(hidden, weight, bias, lambda: None).flatten(0, 1) for _ in range(2))
    read.argmax(-1)
    with torch.no_grad():
        weight.mul_(2.0)
    keep_heads()  # an update that comes too late
    first = F.cross_entropy(F.linear(*given()).flatten(0, 1), target().flatten())
    torch.testing.assert_close(F.cross_entropy(read, target().flatten()), first)
    for use in (lambda: late.argmax(-1), lambda: F.cross_entropy(late, target().flatten())):
        with pytest.raises(GobrrrError, match="changed"):
            use()


def test_inside_of_a_transform_logits_are_computed_at_once() -> None:
    model, x, y = large_head()
    parameters = dict(model.named_parameters())

    def loss(given: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(model, given, (x,)), y)

    expected = torch.func.grad(loss)(parameters)
    with applied("chunked_loss"):
        found = torch.func.grad(loss)(parameters)
    assert all(torch.equal(found[name], expected[name]) for name in parameters)
