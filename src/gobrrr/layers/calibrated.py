"""A model in int8 whose scales are fixed: by the first batch that it is given itself."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

import torch
from torch import nn


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
            # making layers draws numbers; and torch warns that torchao will have all this one day
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
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
    stay float32. Weights that are loaded after that call are not seen. Raises what torch.fx does, at the first call,
    where the model's forward cannot be traced: where it branches on values.
    """
    return _Calibrated(model, keep).eval()
