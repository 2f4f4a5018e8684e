"""Has a tensor been written to, or another been put in its place, since?

By torch's own count of writes. Those through `.data` are not counted, nor are any to a tensor that was made under
inference_mode().
"""

from __future__ import annotations

from typing import Any


def counts(tensor: Any) -> bool:
    """Whether it counts what is written to it."""
    return not tensor.is_inference()


def mark(tensor: Any) -> Any:
    """Equal to the one of before as long as nothing has changed."""
    if tensor is None or not counts(tensor):
        return id(tensor)
    return id(tensor), tensor._version, tensor.data_ptr()
