"""What a step computes and nobody reads: by what torch's own observer writes of steps whose truth is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from gobrrr.recording.run_folder.dataflow_file import NO_WEIGHT
from gobrrr.recording.run_folder.fates import ANY, fates
from gobrrr.recording.trace_files.limits import DEFAULT
from tests.recording.test_repeated_ops import A, B, C, D, Written, observed, tensor

ROWS, LENGTH, WIDTH, WORDS = 4, 16, 32, 96


class Net(nn.Module):
    """A layer of a transformer without attention, and its head."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 80), nn.Linear(80, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(F.gelu(self.inner(self.norm(x))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.hidden(x))


def found(step: Callable[[int], Any], path: Path) -> dict[tuple[Any, ...], tuple[float, ...]]:
    """Fates by the op's name and the shapes of its tensors."""
    told = fates(observed(step, path), (), DEFAULT)
    return {(name.removeprefix("aten::"), *shapes): calls for (name, shapes, _), calls in told.items() if shapes != ANY}


def in_part(step: Callable[[int], Any], path: Path) -> dict[tuple[Any, ...], float]:
    """The share of its result that is read, for the ops of which that is small."""
    return {key: calls[0] for key, calls in found(step, path).items() if 0 < calls[0] < 1}


def read(take: Callable[[torch.Tensor], torch.Tensor], path: Path, trains: bool = True) -> dict[tuple[Any, ...], float]:
    """The same, of a step of Net in which `take` reads its logits."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(_: int) -> None:
        with torch.set_grad_enabled(trains):
            loss = take(net(torch.rand(ROWS, LENGTH, WIDTH))).square().sum()
        if trains:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return in_part(step, path)


def linear(told: dict[tuple[Any, ...], float]) -> dict[tuple[int, ...], float]:
    """The share that is read of each linear layer, by the shape of its weight."""
    return {key[2]: share for key, share in told.items() if key[0] == "linear"}


@pytest.mark.parametrize("trains", [True, False])
def test_the_last_position_needs_no_other_rows_of_the_head_and_the_layers_before_it(
    trains: bool, tmp_path: Path
) -> None:
    told = read(lambda logits: logits[:, -1], tmp_path, trains)
    assert linear(told) == {layer: 1 / LENGTH for layer in ((80, WIDTH), (WIDTH, 80), (WORDS, WIDTH))}
    assert not {"layer_norm", "gelu", "rand", "add"} & {name for name, *_ in told}


@pytest.mark.parametrize("take", [
    lambda logits: logits,
    lambda logits: logits[:, 1:],
    lambda logits: torch.cat([logits[:, :8], logits[:, 8:]], 2),
    lambda logits: logits.softmax(-1)[:, -1],
    lambda logits: logits.cumsum(1)[:, -1],
    lambda logits: logits[:, -1] + logits.mean(1),
    lambda logits: logits.gather(2, torch.zeros(ROWS, LENGTH, 1, dtype=torch.long)),
])  # fmt: skip
def test_what_is_read_whole_or_by_an_op_that_mixes_rows_is_read(
    take: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path
) -> None:
    assert read(take, tmp_path) == {}


def test_rows_that_a_mask_picks_are_those_that_are_read(tmp_path: Path) -> None:
    mask = torch.zeros(ROWS, LENGTH, dtype=torch.bool)
    mask[:, :2] = True
    told = read(lambda logits: logits[mask], tmp_path)
    assert set(linear(told).values()) == {1 / 8} and len(linear(told)) == 3


def test_some_columns_of_a_head_need_all_that_is_before_it(tmp_path: Path) -> None:
    told = read(lambda logits: logits[..., :32], tmp_path)
    assert linear(told) == {(WORDS, WIDTH): 1 / 3}


def test_a_recurrence_needs_all_positions_for_its_last(tmp_path: Path) -> None:
    cell = nn.LSTM(8, 8, batch_first=True)
    assert not in_part(lambda _: cell(torch.rand(2, 6, 8))[0][:, -1].sum(), tmp_path)


def test_what_the_next_step_reads_whole_is_read(tmp_path: Path) -> None:
    net, kept = nn.Linear(8, 8), [torch.zeros(4, 8)]

    def step(_: int) -> None:
        before, kept[0] = kept[0], net(torch.rand(4, 8))
        (kept[0][:1] * 2).sum(), before.exp()

    assert not in_part(step, tmp_path)


def test_a_result_that_no_op_reads_may_be_read_by_numpy(tmp_path: Path) -> None:
    inner, outer = nn.Linear(8, 8), nn.Linear(8, 8)

    def step(_: int) -> None:
        hidden = inner(torch.rand(4, 8))
        outer(hidden).detach().numpy().sum()
        hidden[:1].exp()

    assert not in_part(step, tmp_path)


# work that no weight needs


def idle(
    extra: Callable[[nn.Linear, torch.Tensor, torch.Tensor], Any], path: Path, loader: bool = False, **how: Any
) -> set[str]:
    """Ops that change no weight, of a step that trains a layer and does something beside it."""
    net = nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, **how)
    batches = iter(DataLoader(TensorDataset(torch.rand(64, 8)), batch_size=8))

    def step(_: int) -> None:
        x = next(batches)[0] if loader else torch.rand(8, 8)
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        extra(net, x, loss)

    return {name for (name, *_), calls in found(step, path).items() if NO_WEIGHT in calls}


def preview(net: nn.Linear, x: torch.Tensor, loss: torch.Tensor) -> None:
    with torch.no_grad():
        net(x).sigmoid().clamp(0, 1).numpy()


@pytest.mark.parametrize("loader", [False, True])
@pytest.mark.parametrize("how", [{"foreach": False}, {"foreach": True}, {"fused": True}])
def test_a_preview_changes_no_weight_and_all_else_does(loader: bool, how: dict[str, bool], tmp_path: Path) -> None:
    told = idle(preview, tmp_path, loader, **how)
    assert {"linear", "addmm", "sigmoid", "clamp"} <= told
    assert not told & set("rand index stack square pow mean mm sum ones_like div mul _fused_adamw_".split())


def test_a_figure_on_the_console_changes_none(tmp_path: Path) -> None:
    told = idle(lambda net, x, loss: x.cos().sum().item(), tmp_path)
    assert {"cos", "sum"} <= told and "linear" not in told


def average(net: nn.Linear, x: torch.Tensor, loss: torch.Tensor) -> None:
    KEPT[0] = 0.9 * KEPT[0] + 0.1 * net.weight.detach().exp()


def running(net: nn.Linear, x: torch.Tensor, loss: torch.Tensor) -> None:
    KEPT[0].add_(x.sin().sum())


def remembers(net: nn.Linear, x: torch.Tensor, loss: torch.Tensor) -> None:
    """A memory of samples that is written in every second step, and which later ones may read."""
    KEPT.append(x)
    if len(KEPT) % 2:
        KEPT[1][:8] = x.cos()


def from_outside(net: nn.Linear, x: torch.Tensor, loss: torch.Tensor) -> None:
    """An agent: what Python makes of the preview comes back as an array."""
    preview(net, torch.from_numpy(SEEN.copy()), loss)


def number_from_outside(net: nn.Linear, x: torch.Tensor, loss: torch.Tensor) -> None:
    preview(net, x * torch.tensor(0.5), loss)


def from_a_list(net: nn.Linear, x: torch.Tensor, loss: torch.Tensor) -> None:
    """Samples that Python has chosen by what it saw, perhaps."""
    preview(net, MADE.pop(), loss)


MADE = [torch.rand(8, 8) for _ in range(4)]
KEPT = [torch.zeros(4, 8), torch.zeros(64, 8)]
SEEN = torch.rand(8, 8).numpy()


@pytest.mark.parametrize("extra", [average, running, remembers, from_outside, from_a_list, number_from_outside])
def test_states_and_what_python_may_bring_back_are_needed(extra: Callable[..., Any], tmp_path: Path) -> None:
    assert not idle(extra, tmp_path)


def test_an_inference_changes_no_weight_anyway(tmp_path: Path) -> None:
    net = nn.Linear(8, 8)
    told = found(lambda _: net(torch.rand(4, 8)).exp(), tmp_path)
    assert not any(NO_WEIGHT in calls for calls in told.values())


@pytest.mark.parametrize("read", [tensor(A), tensor(A, 8)], ids=["made anew", "a Python number"])
def test_memory_that_is_used_again_is_another_value(read: list[Any], tmp_path: Path) -> None:
    def step(file: Written) -> None:
        file.op("aten::exp", (tensor(D),), (tensor(A),))  # a figure
        if read == tensor(A):
            file.op("aten::log", (tensor(D),), (tensor(A),))
        update = file.op("Optimizer.step#SGD.step", schema="")
        file.op(
            "aten::add_", (tensor(D), read), (tensor(D),), update, "aten::add_(Tensor(a!) self, Tensor x) -> Tensor(a!)"
        )

    assert Written().found(tmp_path, step) == {"aten::exp": (NO_WEIGHT,)}


def test_rows_of_a_product_with_a_bias_are_those_of_its_second_tensor(tmp_path: Path) -> None:
    inner, outer, bias = torch.rand(8, 8), torch.rand(8, 6), torch.rand(6)
    told = in_part(lambda _: torch.addmm(bias, torch.rand(4, 8) @ inner, outer)[:1].exp(), tmp_path)
    assert told["matmul", (4, 8), (8, 8)] == told["addmm", (6,), (4, 8), (8, 6)] == 1 / 4


def test_what_a_loss_keeps_for_its_backward_is_no_figure_that_had_its_memory_before(tmp_path: Path) -> None:
    def step(file: Written) -> None:
        file.op("aten::exp", (tensor(D),), (tensor(A),))  # a figure
        loss = file.op("aten::loss", (tensor(D),), (tensor(C),))
        file.op("aten::ne", (tensor(D),), (tensor(A),), loss)  # its mask
        node = file.op("autograd::engine::evaluate_function: LossBackward", schema="")
        file.op("aten::masked_fill", (tensor(A),), (tensor(B),), node)
        update = file.op("Optimizer.step#SGD.step", schema="")
        add = "aten::add_(Tensor(a!) self, Tensor x) -> Tensor(a!)"
        file.op("aten::add_", (tensor(D), tensor(B)), (tensor(D),), update, add)

    assert Written().found(tmp_path, step) == {"aten::exp": (NO_WEIGHT,)}
