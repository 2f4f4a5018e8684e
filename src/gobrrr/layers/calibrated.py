"""A model in int8 whose scales are fixed: by the first batch that it is given itself."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


@contextlib.contextmanager
def _making() -> Iterator[None]:
    """Making layers draws numbers; and torch warns that torchao will have all this one day."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _Calibrated(nn.Module):
    """The model in int8, made when it is first called."""

    def __init__(self, model: nn.Module, keep: Collection[str]) -> None:
        super().__init__()
        self.model, self._keep, self._is_made = model, tuple(keep), False

    def __getattr__(self, name: str) -> Any:
        """Attributes that only the model has."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("model"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's result in int8."""
        if not self._is_made:
            with _making(), torch.no_grad():
                self.model, self._is_made = self._made(*args, **kwargs), True
        return self.model(*args, **kwargs)

    def _made(self, *args: Any, **kwargs: Any) -> nn.Module:
        from torch.ao.quantization import get_default_qconfig_mapping
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

        mapping = get_default_qconfig_mapping("x86")
        for name in self._keep:
            mapping.set_module_name(name, None)
        observed = prepare_fx(self.model, mapping, (*args, *kwargs.values()))
        observed(*args, **kwargs)
        made: nn.Module = convert_fx(observed)
        return made


def static_int8(model: nn.Module, keep: Collection[str] = ()) -> nn.Module:
    """Return a model that computes in int8, with scales by what its first call is given.

    That call is computed twice, once to observe it, and makes the int8 layers, which takes a second or so. Weights have
    a scale for each output channel, activations one for each tensor (torch's x86 backend, CPU). Layers named in `keep`
    stay float32. Raises what torch.fx does, at the first call, where the model's forward cannot be traced: where it
    branches on values.
    """
    return _Calibrated(model, keep).eval()


def simulated_int8(model: Model, keep: Collection[str] = ()) -> Model:
    """Round what linear layers and convolutions of `model` are given, and their weights, to 8 bits; in place.

    The numbers are about those of static_int8 (each input's own extremes stand for observed ones), at no gain of time:
    to see how much a layer matters. Gives the model back.
    """
    for name, part in model.named_modules():
        if isinstance(part, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)) and name not in keep:
            most = part.weight.detach().flatten(1).abs().amax(1).clamp_min(1e-30) / 127
            scale = most.view(-1, *[1] * (part.weight.dim() - 1))
            part.weight = nn.Parameter((part.weight.detach() / scale).round() * scale, requires_grad=False)
            part.register_forward_pre_hook(_round_first)
    return model


def _round_first(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return _rounded(given[0]), *given[1:]


def _rounded(x: Tensor) -> Tensor:
    """Return x on 256 levels between its extremes, 0 among them."""
    if not x.numel():
        return x
    low, high = min(0.0, float(x.detach().min())), max(0.0, float(x.detach().max()))
    scale = max(high - low, 1e-30) / 255
    zero = round(-low / scale)
    return torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)
