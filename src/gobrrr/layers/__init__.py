"""Layers that people can use alone: as torch's, in fewer bytes or less time. torch is imported on first use."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gobrrr.layers.calibrated import static_int8
    from gobrrr.layers.conv_bn import ConvBn2d
    from gobrrr.layers.draft import int8_draft
    from gobrrr.layers.factored import low_rank
    from gobrrr.layers.halved import half_precision
    from gobrrr.layers.noted import sensitivity
    from gobrrr.layers.pruned import two_of_four
    from gobrrr.layers.ready import made_once

_HOMES = {
    "ConvBn2d": "conv_bn", "half_precision": "halved", "int8_draft": "draft", "low_rank": "factored",
    "made_once": "ready", "sensitivity": "noted", "static_int8": "calibrated", "two_of_four": "pruned",
}  # fmt: skip
"""File of each part; none has a part's name, or importing it would hide the part."""
__all__ = [
    "ConvBn2d",
    "half_precision",
    "int8_draft",
    "low_rank",
    "made_once",
    "sensitivity",
    "static_int8",
    "two_of_four",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gobrrr.layers.{_HOMES[name]}"), name)
