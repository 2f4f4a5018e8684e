"""What graphs keep for backward: against counts by hand, in every way of using autograd, and without touching it."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402

from gobrrr.capture.source.user_code import UserFiles  # noqa: E402
from gobrrr.capture.windows import saved_for_backward as saved_module  # noqa: E402
from gobrrr.capture.windows.line_log import LineLog, module_names  # noqa: E402
from gobrrr.capture.windows.saved_for_backward import Saved  # noqa: E402

FLOAT = 4
nn = torch.nn


class Users(UserFiles):
    """These tests are the user's program."""

    def is_user(self, filename: str) -> bool:
        return filename == __file__


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """Coverage or a debugger may be tracing this very test."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def watching(program: Callable[[], object], net: Any = None) -> Saved:
    """The program under a line log that counts, as in the counting window."""
    net = nn.Identity() if net is None else net
    owned = {t.untyped_storage()._cdata for t in (*net.parameters(), *net.buffers())}
    log = LineLog(
        Users(), module_names([net]),
        on_result=lambda result: saved.result(result),
        on_backward=lambda roots: saved.graph(roots), clock=torch.autograd._get_sequence_nr,
    )  # fmt: skip
    saved = Saved(owned, log, lambda tensor, span: None)
    assert log.start(sys._getframe())
    try:
        program()
    finally:
        log.stop(sys._getframe())
    assert not log.error
    return saved


def total(saved: Saved) -> int:
    return sum(num_bytes for num_bytes, _ in saved.table().values())


def small() -> Any:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def test_saved_bytes_are_those_counted_by_hand() -> None:
    """linear saves its input (weights are not counted), ReLU its output, which is the next linear's input: once."""
    net, x = small(), torch.randn(32, 8)
    saved = watching(lambda: net(x).sum().backward(), net)
    line = sys._getframe().f_lineno - 1
    assert saved.table() == {
        ("Sequential.0", "addmm", __file__, "<lambda>", line): (FLOAT * 32 * 8, 1),
        ("Sequential.1", "relu", __file__, "<lambda>", line): (FLOAT * 32 * 16, 1),
    }


def test_where_backward_passes_lead_is_known() -> None:
    """To what gets a gradient: not to what is frozen, nor to what is cut off."""
    used, frozen, cut = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    frozen.requires_grad_(False)
    saved = watching(lambda: frozen(used(cut(torch.randn(4, 8)).detach())).sum().backward())
    reached = {each for each in (used, frozen, cut) if id(each.weight) in saved.reached}
    assert reached == {used}


def test_a_graph_without_a_backward_is_seen_where_its_module_returns() -> None:
    net = small()
    x = torch.randn(32, 8)
    assert total(watching(lambda: net(x).argmax(), net)) == FLOAT * (32 * 8 + 32 * 16)


def test_lines_of_a_users_own_forward_are_told() -> None:
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            y = x.exp()
            return y.sin()

    x, first = torch.randn(64, requires_grad=True), Net.forward.__code__.co_firstlineno
    table = watching(lambda: Net()(x).sum().backward()).table()
    assert {(op, function, line - first) for _, op, _, function, line in table} == {("exp", "forward", 1)}, (
        "sin saves what exp has saved"
    )


def test_a_view_saves_its_whole_storage_once() -> None:
    x = torch.randn(64, 8, requires_grad=True)

    def program() -> None:
        a, b = x.chunk(2)
        (a * b).sum().backward()

    assert total(watching(program)) == FLOAT * 64 * 8


def test_of_a_mapped_file_only_what_is_read_is_kept(tmp_path: Path) -> None:
    (file := tmp_path / "big").touch()
    os.truncate(file, FLOAT * 10**10)
    x = torch.from_file(str(file), size=10**10, shared=True).as_strided((4, 8), (10**9, 1))
    weight = torch.randn(8, 2, requires_grad=True)
    assert total(watching(lambda: (x @ weight).sum().backward())) == FLOAT * 4 * 8


def test_buffers_and_parameters_are_nobodys_activations() -> None:
    net, x = nn.BatchNorm1d(8), torch.randn(32, 8)
    kept = total(watching(lambda: net(x).sum().backward(), net))
    assert kept == FLOAT * (32 * 8 + 2 * 8), "the input, and this batch's mean and deviation"


def test_without_gradients_nothing_is_saved() -> None:
    net = small()

    def program() -> None:
        with torch.no_grad():
            net(torch.randn(4, 8))

    saved = watching(program, net)
    assert (saved.table(), saved.reason) == ({}, "")


def test_what_counts_is_the_moment_at_which_most_is_kept() -> None:
    """Micro-batches one after the other are kept one at a time, two losses before their backwards both."""
    x = torch.randn(1000, requires_grad=True)

    def one_by_one() -> None:
        for _ in range(5):
            x.exp().sum().backward()

    def both() -> None:
        losses = [nn.Identity()(x.exp()).sum() for _ in range(2)]
        for loss in losses:
            loss.backward()

    assert total(watching(one_by_one)) == FLOAT * 1000
    assert total(watching(both)) == 2 * FLOAT * 1000


class Double(torch.autograd.Function):
    """A function of the user's."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x.clone())
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return 2 * gradient


def test_what_a_users_function_saves_is_counted() -> None:
    x = torch.randn(100, requires_grad=True)
    (saver,) = watching(lambda: Double.apply(x).sum().backward()).table()
    assert saver[1] == "double"


def ways() -> dict[str, Callable[[Any], Any]]:
    """Ways of using autograd; each gives what came out."""

    def retained(x: Any) -> Any:
        loss = x.sigmoid().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return x.grad

    def penalty(x: Any) -> Any:
        (g,) = torch.autograd.grad((x.sigmoid() ** 2).sum(), x, create_graph=True)
        g.square().sum().backward()
        return x.grad

    def third(x: Any) -> Any:
        y = x.sin().sum()
        for _ in range(3):
            (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y

    def written(x: Any) -> Any:
        y = torch.zeros(4, 100)
        y[0] = x.exp()
        y[1].mul_(x)
        y.sum().backward()
        return x.grad

    def edges(x: Any) -> Any:
        y = x.exp()
        edge = torch.autograd.graph.get_gradient_edge(y)
        return torch.autograd.grad([edge], x, [torch.ones(100)])[0]

    def freed_twice(x: Any) -> Any:
        loss = x.sigmoid().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        return x.grad

    def stale(x: Any) -> Any:
        h = x.sigmoid()
        loss = (h * h).sum()
        h.detach().zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        return loss

    def batched(x: Any) -> Any:
        return torch.autograd.grad(x.exp(), x, torch.eye(100)[:3], is_grads_batched=True)[0]

    def transformed(x: Any) -> Any:
        return torch.func.vmap(torch.func.grad(lambda t: t.exp().sum()))(x.reshape(10, 10))

    def second_order(x: Any) -> Any:
        return torch.func.hessian(lambda t: t.sin().sum())(x)

    def recomputed(x: Any) -> Any:
        checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False).sum().backward()
        return x.grad

    return {
        function.__name__: function
        for function in (
            retained, penalty, third, written, edges, freed_twice, stale, batched, transformed, second_order,
            recomputed,
        )
    }  # fmt: skip


@pytest.mark.parametrize("way", ways())
def test_every_way_of_using_autograd_gives_what_it_gives_unwatched(way: str) -> None:
    torch.manual_seed(0)
    given, found = torch.randn(100), []
    plain = ways()[way](given.clone().requires_grad_())
    net = nn.Identity()
    x = given.clone().requires_grad_()
    watching(lambda: found.append(net(ways()[way](net(x)))))
    assert torch.equal(found[0], plain)
    assert x._version == 0


@pytest.mark.parametrize("way", ["retained", "penalty", "third", "edges"])
def test_what_these_ways_keep_is_counted(way: str) -> None:
    x = torch.randn(100, requires_grad=True)
    saved = watching(lambda: ways()[way](x))
    assert saved.reason == ""
    assert total(saved) >= FLOAT * 100


# not counted: a reason, and not one byte


def packing(kind: Any) -> Callable[[Any], None]:
    def program(x: Any) -> None:
        with kind:
            loss = x.exp().sum()
        loss.backward()

    return program


class Loud:
    """Saved-tensor hooks that count how often they are called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def hooks(self) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor: Any) -> Any:
        self.calls.append("pack")
        return tensor

    def _unpack(self, tensor: Any) -> Any:
        self.calls.append("unpack")
        return tensor


def test_the_programs_own_hooks_are_not_called_once_more() -> None:
    loud, x = Loud(), torch.randn(100, requires_grad=True)
    saved = watching(lambda: packing(loud.hooks())(x))
    assert loud.calls == ["pack", "unpack"]
    assert saved.reason and saved.table() == {}


def test_nor_are_hooks_on_a_single_saved_tensor() -> None:
    loud, x = Loud(), torch.randn(100, requires_grad=True)

    def program() -> None:
        y = x.exp()
        y.grad_fn._raw_saved_result.register_hooks(loud._pack, loud._unpack)
        y.sum().backward()

    assert watching(program).reason
    assert loud.calls == ["pack", "unpack"]


class Tagged(torch.Tensor):
    """A subclass of the user's."""


def test_a_subclass_or_a_sparse_tensor_is_not_counted() -> None:
    x = torch.randn(10, 10, requires_grad=True)
    sparse = torch.eye(10).to_sparse()
    assert "Tagged" in watching(lambda: (x.as_subclass(Tagged) * 2).exp().sum().backward()).reason
    assert "sparse" in watching(lambda: torch.sparse.mm(sparse, x).sum().backward()).reason


def test_a_node_that_does_not_show_what_it_keeps_is_told() -> None:
    x = torch.randn(10, requires_grad=True)
    saved = watching(lambda: ways()["written"](torch.randn(100, requires_grad=True)))
    assert "CopySlices" in saved.reason and saved.table() == {}
    assert x.grad is None


def test_too_large_a_graph_is_not_walked_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_module, "MAX_NODES", 20)
    x = torch.randn(10, requires_grad=True)

    def program() -> None:
        y = x
        for _ in range(30):
            y = y.sin()
        y.sum().backward()

    assert "20 nodes" in watching(program).reason


# nothing is held


def test_no_graph_and_no_tensor_lives_longer() -> None:
    alive: list[bool] = []
    net = small()

    def program() -> None:
        out = net(torch.randn(32, 8, requires_grad=True))
        refs = [weakref.ref(out)]
        hidden = out.sigmoid()
        refs.append(weakref.ref(hidden))
        hidden.sum().backward()
        del out, hidden
        alive.extend(ref() is not None for ref in refs)

    gc.disable()
    try:
        saved = watching(program, net)
    finally:
        gc.enable()
    assert alive == [False, False]
    assert saved.table(), "the bytes stay known"


def test_the_memory_of_a_freed_graph_is_given_back() -> None:
    """Storages are held weakly: what a backward frees is free, and no graph of steps ago is summed."""
    x = torch.randn(1 << 20, requires_grad=True)
    freed: list[Any] = []

    def program() -> None:
        for _ in range(4):
            y = x.exp()
            freed.append(torch.multiprocessing.reductions.StorageWeakRef(y.untyped_storage()))
            y.sum().backward()
            del y

    saved = watching(program)
    assert all(ref.expired() for ref in freed)
    assert total(saved) == FLOAT << 20


@pytest.mark.parametrize(
    ("node", "op"),
    [
        ("MaxPool2DWithIndicesBackward0", "max_pool2d_with_indices"), ("AddmmBackward0", "addmm"),
        ("NativeLayerNormBackward0", "native_layer_norm"), ("AdaptiveAvgPool2DBackward0", "adaptive_avg_pool2d"),
        ("UpsampleBilinear2DBackward1", "upsample_bilinear2d"), ("Log2Backward0", "log2"),
    ],
)  # fmt: skip
def test_a_nodes_name_is_its_ops(node: str, op: str) -> None:
    assert saved_module._WORDS.sub("_", saved_module._BACKWARD.sub("", node)).lower() == op
