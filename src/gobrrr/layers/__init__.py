"""Layers that people can use alone: as torch's, in fewer bytes or less time. torch is imported on first use."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gobrrr.layers.conv_bn import ConvBn2d
    from gobrrr.layers.half_precision import half_precision
    from gobrrr.layers.low_rank import low_rank
    from gobrrr.layers.sensitivity import note_run, note_sensitivity, sensitivity, weight_bytes
    from gobrrr.layers.sparse import two_of_four
    from gobrrr.layers.static_int8 import simulated_int8, static_int8

_HOMES = {
    "ConvBn2d": "conv_bn", "half_precision": "half_precision", "low_rank": "low_rank", "note_run": "sensitivity",
    "note_sensitivity": "sensitivity", "sensitivity": "sensitivity", "simulated_int8": "static_int8",
    "static_int8": "static_int8", "two_of_four": "sparse", "weight_bytes": "sensitivity",
}  # fmt: skip
__all__ = [
    "ConvBn2d", "half_precision", "low_rank", "note_run", "note_sensitivity", "sensitivity", "simulated_int8",
    "static_int8", "two_of_four", "weight_bytes",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gobrrr.layers.{_HOMES[name]}"), name)
