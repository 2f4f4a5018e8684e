"""Nets in 8 bits, three ways: by plain tensors, and by torch.ao.quantization, which is deprecated but still there."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

from gobrrr.errors import GobrrrError

ENGINES = ("x86", "fbgemm", "onednn", "qnnpack")
"""Engines of torch's quantized kernels, by preference; a build has one for its processor, or none."""


def weight_only(torch: Any, net: Any) -> Any:
    """A copy whose layers hold whole numbers of 8 bits and a scale for each output channel, and compute in fp32."""
    made = copy.deepcopy(net)
    for layer in list(made.modules()):
        if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d)):
            low, scale = quantised(torch, layer.weight.detach())
            del layer.weight
            layer.register_buffer("low", low)
            layer.register_buffer("scale", scale)
            layer.forward = _forward(torch, layer)
    return made


def quantised(torch: Any, weight: Any) -> tuple[Any, Any]:
    """(whole numbers from -127 to 127, scale per output channel): symmetric, the largest of a channel is 127."""
    scale = weight.flatten(1).abs().amax(1).clamp(min=1e-12) / 127
    per = scale.reshape(-1, *[1] * (weight.dim() - 1))
    return (weight / per).round().to(torch.int8), scale


def dynamic(torch: Any, net: Any) -> Any:
    """Linear layers with weights of 8 bits; activations are quantised in each call."""
    return _by_torch(torch, lambda ao: ao.quantize_dynamic(net, {torch.nn.Linear}, dtype=torch.qint8))


def static(torch: Any, net: Any, seen: Any) -> Any:
    """Every layer in 8 bits throughout, norms and ReLUs folded in, ranges taken from what was `seen`."""

    def convert(ao: Any) -> Any:
        made = ao.QuantWrapper(ao.fuse_modules(copy.deepcopy(net), _groups(torch, net))).eval()
        made.qconfig = ao.get_default_qconfig(torch.backends.quantized.engine)
        ao.prepare(made, inplace=True)
        made(seen)
        return ao.convert(made, inplace=True)

    return _by_torch(torch, convert)


def _forward(torch: Any, layer: Any) -> Callable[[Any], Any]:
    if isinstance(layer, torch.nn.Linear):  # the scale of a channel can wait until after the product
        return lambda x: torch.addcmul(layer.bias, x @ layer.low.to(x.dtype).T, layer.scale)
    scale = layer.scale[:, None, None]
    return lambda x: layer._conv_forward(x, layer.low.to(x.dtype), None) * scale + layer.bias[:, None, None]


def _groups(torch: Any, net: Any) -> list[list[str]]:
    """Names of neighbours in a Sequential that become one layer."""
    nn, names, groups = torch.nn, list(net), []
    for at, layer in enumerate(names):
        if not isinstance(layer, (nn.Linear, nn.Conv2d)):
            continue
        group = [at]
        for wanted in (nn.BatchNorm2d, nn.ReLU):
            if group[-1] + 1 < len(names) and isinstance(names[group[-1] + 1], wanted):
                group.append(group[-1] + 1)
        groups += [[str(each) for each in group]] if len(group) > 1 else []
    return groups


def _by_torch(torch: Any, make: Callable[[Any], Any]) -> Any:
    ao = getattr(torch.ao, "quantization", None)
    engine = next((each for each in ENGINES if each in torch.backends.quantized.supported_engines), None)
    if ao is None or engine is None:
        raise GobrrrError(f"this torch has no {'torch.ao.quantization' if ao is None else 'engine for 8 bits'}")
    torch.backends.quantized.engine = engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return make(ao)
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            raise GobrrrError(f"this torch has no int8 layers here: {str(error).splitlines()[0]}") from None
