"""Which norms go into which layers, read off real forwards; what nobody may fold stays as it is."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from gobrrr.guard.watch.witness import Witness
from tests.remedies.test_effects import applied


class Net(nn.Module):
    """A layer and a norm, put together as a test likes."""

    def __init__(self, how: Callable[[Net, torch.Tensor], torch.Tensor], **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.how, self.seen = how, 0
        for part in self.modules():
            if isinstance(part, nn.BatchNorm2d) and part.running_mean is not None:  # statistics as of a training
                part.running_mean.uniform_(-1, 1)
                part.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return self.how(self, x)


X = torch.randn(2, 4, 6, 6)


def conv() -> nn.Conv2d:
    return nn.Conv2d(4, 4, 3, padding=1)


def folded(net: nn.Module) -> dict[str, str]:
    """What was said; the same numbers, and everything as it was afterwards."""
    net.eval()
    before = copy.deepcopy(net.state_dict())
    with torch.no_grad():
        expected = net(X)
        with applied("fold_batch_norm") as said:
            torch.testing.assert_close(net(X), expected, rtol=1e-4, atol=1e-5)
        assert torch.equal(net(X), expected)
    assert before.keys() == net.state_dict().keys()
    return dict(said)


def test_attributes_of_a_module_are_folded_as_its_forward_joins_them() -> None:
    net = Net(lambda n, x: torch.relu(x + n.b(n.a(x))), b=nn.BatchNorm2d(4), a=conv())
    assert folded(net) == {"fold_batch_norm": "1 layers"}
    assert net.seen == 3, "its forward was followed in a copy: what it counts is not moved"


def test_children_of_a_forward_that_depends_on_values_are_looked_at() -> None:
    inner = Net(lambda n, x: n.b(n.a(x)), a=conv(), b=nn.BatchNorm2d(4))
    assert folded(Net(lambda n, x: n.inner(x) if x.sum() > -1e9 else x, inner=inner)) == {"fold_batch_norm": "1 layers"}


def shared() -> nn.Module:
    layer = conv()
    return Net(lambda n, x: n.b(n.a(n.a(x))), a=layer, b=nn.BatchNorm2d(4))


def hooked() -> nn.Module:
    net = Net(lambda n, x: n.b(n.a(x)), a=conv(), b=nn.BatchNorm2d(4))
    net.a.register_forward_hook(lambda *_: None)
    return net


def trained() -> nn.Module:
    net = Net(lambda n, x: n.b(n.a(x)), a=nn.utils.parametrizations.weight_norm(conv()), b=nn.BatchNorm2d(4))
    return net


@pytest.mark.parametrize(
    "net",
    [
        Net(lambda n, x: n.b(h := n.a(x)) + h, a=conv(), b=nn.BatchNorm2d(4)),  # its output goes elsewhere too
        Net(lambda n, x: n.b(torch.relu(n.a(x))), a=conv(), b=nn.BatchNorm2d(4)),
        Net(lambda n, x: n.a(n.b(x)), a=conv(), b=nn.BatchNorm2d(4)),
        Net(lambda n, x: n.b(n.a(x)), a=conv(), b=nn.BatchNorm2d(4, track_running_stats=False)),
        Net(lambda n, x: n.b(n.b(n.a(x))), a=conv(), b=nn.BatchNorm2d(4)),
        shared(), hooked(), trained(),
    ],
    ids=[
        "two users", "activation between", "before", "no statistics",
        "norm twice", "layer twice", "hooked", "parametrized",
    ],
)  # fmt: skip
def test_what_is_no_one_layer_stays(net: nn.Module) -> None:
    assert folded(net) == {}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda net: net[3].train(), lambda net: net[3].register_forward_hook(lambda *_: None),
        lambda net: net[3].register_forward_pre_hook(lambda *_: None),
        lambda net: net[2].register_forward_pre_hook(lambda *_: None),
    ],
    ids=["norm trains", "norm hooked", "norm hooked before", "layer hooked before"],
)  # fmt: skip
def test_a_pair_that_may_not_be_folded_spoils_no_other(spoil: Callable[[nn.Sequential], object]) -> None:
    net = nn.Sequential(conv(), normed(4), conv(), normed(4)).eval()
    spoil(net)
    with torch.no_grad():
        expected = net(X)
        with applied("fold_batch_norm") as said:
            torch.testing.assert_close(net(X), expected, rtol=1e-4, atol=1e-5)
        assert said == {"fold_batch_norm": "1 layers"}


class Aliased(nn.Module):
    """A layer under two names, of which the forward uses the second: a decoder that cuts up a backbone."""

    def __init__(self) -> None:
        super().__init__()
        self.first = conv()
        self.net = nn.Sequential(self.first, normed(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Gated(nn.Module):
    """What a default means, torch.fx does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = conv(), normed(4)

    def forward(self, x: torch.Tensor, gate: torch.Tensor | None = None) -> torch.Tensor:
        x = self.a(x)
        return self.b(torch.relu(x) if gate is None else x)


def normed(width: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(width)
    norm.running_mean.uniform_(-1, 1)
    norm.running_var.uniform_(0.5, 2)
    return norm


def keeps_what_a_layer_made() -> nn.Module:
    def forward(net: Net, x: torch.Tensor) -> torch.Tensor:
        net.kept = net.a(x)
        return net.b(net.kept)

    inner = Net(forward, a=conv(), b=normed(4))
    return Net(lambda n, x: n.inner(x) + n.inner.kept if x.sum() > -1e9 else x, inner=inner)


@pytest.mark.parametrize("net", [Aliased(), nn.Sequential(Aliased(), conv(), normed(4))], ids=["alone", "inside"])
def test_a_layer_under_two_names_is_folded_where_it_is_used(net: nn.Module) -> None:
    assert "layers" in folded(net)["fold_batch_norm"]


@pytest.mark.parametrize(
    "net",
    [
        Gated(),
        Net(lambda n, x: n.b(n.a(x)) + nn.functional.conv2d(x, n.a.weight, padding=1), a=conv(), b=normed(4)),
        keeps_what_a_layer_made(),
    ],
    ids=["default", "weight read", "kept"],
)
def test_what_only_a_call_shows_is_not_folded(net: nn.Module) -> None:
    assert folded(net) == {}


def test_a_norm_over_another_dimension_than_the_layers_stays_itself() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).eval()
    net[1].running_mean.uniform_(-1, 1)
    three = torch.randn(2, 8, 8)
    with torch.no_grad():
        expected = net(three)
        with applied("fold_batch_norm"):
            torch.testing.assert_close(net(three), expected)


def test_a_checkpoint_that_is_loaded_later_counts() -> None:
    net, other = (nn.Sequential(conv(), normed(4)).eval() for _ in range(2))
    with torch.no_grad(), applied("fold_batch_norm") as said:
        net(X)
        net.load_state_dict(other.state_dict())
        torch.testing.assert_close(net(X), other(X), rtol=1e-4, atol=1e-5)
    assert said


def test_a_copy_has_its_own_forward_and_training_goes_on() -> None:
    net = nn.Sequential(conv(), normed(4)).eval()
    with applied("fold_batch_norm") as said:
        with torch.no_grad():
            expected = net(X)
        twin = copy.deepcopy(net)
        assert twin[0].forward.__func__ is nn.Conv2d.forward  # type: ignore[attr-defined]
        with torch.no_grad():
            torch.testing.assert_close(twin(X), expected, rtol=1e-4, atol=1e-5)
        net(X).sum().backward()
        assert net[1].weight.grad is not None
    assert said


@pytest.mark.parametrize("uncounted", [False, True])
def test_weights_that_are_put_in_the_place_of_others_count(uncounted: bool) -> None:
    net = Net(lambda n, x: n.b(n.a(x)), a=conv(), b=nn.BatchNorm2d(4)).eval()
    with torch.inference_mode():
        other = conv().weight
    with torch.no_grad(), applied("fold_batch_norm") as said:
        net(X)
        if uncounted:
            net.a.weight = other
        else:
            net.a.weight.data = torch.ones_like(net.a.weight)
        found = net(X)
    assert said
    with torch.no_grad():
        torch.testing.assert_close(found, net(X), rtol=1e-4, atol=1e-5)


def test_a_net_that_counts_no_writes_is_not_folded() -> None:
    with torch.inference_mode():
        net = Net(lambda n, x: n.b(n.a(x)), a=conv(), b=nn.BatchNorm2d(4)).eval()
        with applied("fold_batch_norm") as said:
            net(X)
            net.a.weight.mul_(2.0)
            found = net(X)
        assert torch.equal(found, net(X)) and not said


def test_the_guard_sees_the_folded_model_and_no_layers_output_that_is_already_normed() -> None:
    net = nn.Sequential(conv(), normed(4), nn.ReLU()).eval()
    with torch.no_grad(), applied("fold_batch_norm") as said, Witness() as witness:
        net(X)
    assert said == {"fold_batch_norm": "1 layers"}
    assert list(witness.observation().steps[0].calls[0].inside) == ["Sequential#0.1", "Sequential#0.2"]


class Wrapped(nn.Module):
    """A layer in a module of its own, whose hooks are given the layer's output."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Sequential(conv()), normed(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.stem(x))


def hook_everywhere(net: Wrapped, hook: Callable[..., None]) -> RemovableHandle:
    return nn.modules.module.register_module_forward_hook(lambda m, *given: hook(m, *given) if m is net.stem else None)


@pytest.mark.parametrize(
    "listen",
    [
        lambda net, hook: net.stem[0].register_forward_hook(hook),
        lambda net, hook: net.stem.register_forward_hook(hook),
        lambda net, hook: net.norm.register_forward_pre_hook(lambda m, given: hook(m, (), *given)), hook_everywhere,
    ],
    ids=["layer", "around it", "norm", "everywhere"],
)  # fmt: skip
@pytest.mark.parametrize("late", [True, False])
def test_who_listens_between_is_given_what_the_layer_makes(
    listen: Callable[[Wrapped, Callable[..., None]], RemovableHandle], late: bool
) -> None:
    net, heard = Wrapped().eval(), list[torch.Tensor]()
    with torch.no_grad():
        expected = net.stem(X)
        with applied("fold_batch_norm") as said:
            if late:
                net(X)
            handle = listen(net, lambda _module, _given, output: heard.append(output))
            net(X)
        handle.remove()
    assert bool(said) is late
    assert torch.equal(heard[0], expected)


def test_a_layer_that_is_called_alone_makes_what_it_always_does() -> None:
    net = nn.Sequential(conv(), normed(4)).eval()
    with torch.no_grad():
        expected = net[0](X)
        with applied("fold_batch_norm") as said:
            net(X)
            assert torch.equal(net[0](X), expected)
    assert said


def test_a_layer_that_a_parent_calls_alone_is_folded_in_the_forward_that_was_followed() -> None:
    """Its own forward depends on values; that of the child does not."""
    inner = nn.Sequential(conv(), normed(4))
    net = Net(lambda n, x: n.inner(x) + n.inner[0](x) if x.sum() > -1e9 else x, inner=inner)
    assert folded(net) == {"fold_batch_norm": "1 layers"}


def test_a_layer_that_only_some_calls_use_alone_is_folded_in_its_own_forward() -> None:
    inner = nn.Sequential(conv(), normed(4))
    net = Net(lambda n, x: n.inner(x) + (n.inner[0](x) if x.mean() > 5 else 0), inner=inner).eval()
    large = X + 10
    with torch.no_grad():
        expected = net(large)
        with applied("fold_batch_norm") as said:
            net(X)
            torch.testing.assert_close(net(large), expected, rtol=1e-4, atol=1e-4)
    assert said


def drop_statistics(net: nn.Sequential) -> None:
    net[1].running_mean = net[1].running_var = None


@pytest.mark.parametrize(
    "change",
    [
        lambda net: setattr(net[1], "eps", 10.0), lambda net: net.__setitem__(1, nn.Identity()),
        lambda net: net.__setitem__(1, nn.BatchNorm2d(4).eval()), lambda net: net.insert(1, nn.ReLU()),
        lambda net: nn.utils.parametrizations.weight_norm(net[0]), drop_statistics,
    ],
    ids=["eps", "no norm", "other norm", "between", "parametrized", "statistics"],
)  # fmt: skip
def test_what_is_changed_later_counts(change: Callable[[nn.Sequential], object]) -> None:
    net = nn.Sequential(conv(), normed(4)).eval()
    with torch.no_grad():
        with applied("fold_batch_norm") as said:
            net(X)
            change(net)
            found = net(X)
        torch.testing.assert_close(found, net(X), rtol=1e-4, atol=1e-5)
    assert said


def test_another_thread_is_not_in_the_forward_of_this_one() -> None:
    net = nn.Sequential(conv(), normed(4)).eval()
    found = list[torch.Tensor]()

    def alone() -> None:
        with torch.no_grad():
            found.append(net[0](X))

    def meanwhile(*_: object) -> None:
        thread = threading.Thread(target=alone)
        thread.start()
        thread.join()

    net.append(nn.ReLU())
    with torch.no_grad():
        expected = net[0](X)
        with applied("fold_batch_norm") as said:
            net(X)
            net[2].register_forward_hook(meanwhile)
            net(X)
    assert said and torch.equal(found[0], expected)


def test_a_compiled_model_is_left_to_the_compiler() -> None:
    net = nn.Sequential(conv(), normed(4)).eval()
    net.compile(backend="eager")
    with torch.no_grad(), applied("fold_batch_norm") as said:
        net(X)
    assert not said
