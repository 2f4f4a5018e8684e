"""Which norms go into which layers, read off real forwards; what nobody may fold stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

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


def calls_a_childs_layer() -> nn.Module:
    """Its own forward depends on values; that of the child does not."""
    inner = nn.Sequential(conv(), normed(4))
    return Net(lambda n, x: n.inner(x) + n.inner[0](x) if x.sum() > -1e9 else x, inner=inner)


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
        calls_a_childs_layer(),
        keeps_what_a_layer_made(),
    ],
    ids=["default", "weight read", "called by the parent", "kept"],
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
