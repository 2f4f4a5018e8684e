"""Layers that people can use alone: the same numbers as torch's for fewer bytes. torch is imported on first use."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gobrrr.layers.conv_bn import ConvBn2d

__all__ = ["ConvBn2d"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gobrrr.layers import conv_bn

    return getattr(conv_bn, name)
