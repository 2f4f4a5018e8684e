"""A convolution and batch norm computed again in backward: torch's own in float64, and the bytes that are kept."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from gobrrr.layers import ConvBn2d

SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"padding": 1}, {}),
    ({"stride": 2, "bias": False, "groups": 2}, {"affine": False}),
    ({"dilation": 2, "padding": (2, 1)}, {"momentum": None, "eps": 0.1}),
    ({}, {"track_running_stats": False}),
    ({}, {"momentum": 0.3}),
    ({"padding": 1, "padding_mode": "reflect"}, {}),
    ({"padding": "same"}, {}),
]


def run(model: Any, x: torch.Tensor, times: int = 3) -> list[torch.Tensor]:
    """Results, gradients and state of some steps, and of a step in eval()."""
    found = []
    for number in range(times + 1):
        model.train(number < times)
        given = (x + number).requires_grad_()
        model.zero_grad()
        result = model(given)
        (result * torch.arange(result.numel(), dtype=result.dtype).view_as(result).sin()).sum().backward()
        found += [result.detach(), given.grad, *(p.grad for p in model.parameters())]
    return [*found, *model.state_dict().values()]


@pytest.mark.parametrize(("conv", "norm"), SETTINGS)
def test_it_is_torchs_own_in_float64(conv: dict[str, Any], norm: dict[str, Any]) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(4, 6, 3, **conv), nn.BatchNorm2d(6, **norm)).double()
    ours = ConvBn2d(*copy.deepcopy(plain))  # type: ignore[arg-type]
    x = torch.randn(5, 4, 9, 8, dtype=torch.float64)
    for expected, found in zip(run(plain, x), run(ours, x), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_what_torch_refuses_is_refused() -> None:
    with pytest.raises(ValueError, match="64 channels"):
        ConvBn2d(nn.Conv2d(2, 64, 1), nn.BatchNorm2d(2))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        ConvBn2d(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))(torch.randn(1, 2, 1, 1))


def test_hooks_on_the_two_are_called() -> None:
    layer, seen = ConvBn2d(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, momentum=0.3)), []
    layer.conv.register_forward_hook(lambda *_: seen.append(1))
    layer(torch.randn(4, 2, 3, 3))
    assert seen == [1]


def test_gradients_are_those_of_differences() -> None:
    torch.manual_seed(0)
    layer = ConvBn2d(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)).double()
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    weights = (layer.conv.weight, layer.norm.weight, layer.norm.bias)
    assert torch.autograd.gradcheck(lambda x, *_: layer(x), (x, *weights))


def test_the_convolutions_result_is_not_kept() -> None:
    def kept(model: nn.Module) -> int:
        sizes: dict[int, int] = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: sizes.__setitem__(t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) or t, lambda t: t
        ):
            model(torch.randn(4, 8, 16, 16, requires_grad=True))
        return sum(sizes.values())

    plain = nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.BatchNorm2d(32))
    result = 4 * 32 * 16 * 16 * 4
    spared = kept(plain) - kept(ConvBn2d(*copy.deepcopy(plain)))  # type: ignore[arg-type]
    assert result - 1024 < spared <= result  # but for a number per channel


def test_what_it_does_not_do_itself_is_torchs() -> None:
    torch.manual_seed(0)
    layer = ConvBn2d(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))
    x = torch.randn(4, 2, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    with torch.no_grad():
        assert layer(x).grad_fn is None
    twice = torch.autograd.grad(layer(x.requires_grad_()).square().sum(), x, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        twice.sum().backward()
