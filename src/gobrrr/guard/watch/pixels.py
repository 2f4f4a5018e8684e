"""Part a sample or a batch into pictures, pixel by pixel, and a digest of the rest: for changes of pixels that a user
has consented to. Everything that is not plainly a picture stays with the rest, which must be equal bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gobrrr.guard.model.observation import Given, Pixels
from gobrrr.guard.watch.rows import fingerprint, leaves_of

CHANNELS = (1, 3, 4)
SMALLEST = 8
"""Pixels of a picture's shorter side: anything narrower is a table."""
PLACES, ALL_PLACES = 256, 65_536
"""Pixels kept of each picture of a batch, and of one that is fetched by itself: all of 256 x 256."""


def given_of(value: Any, batch: bool) -> Given:
    """Return the pixels of the pictures, or batches of them, in a nest of tensors, arrays and Pillow's pictures, and a
    digest of the rest, with the shapes and dtypes of the pictures."""
    rest: list[Any] = []
    found: list[Pixels] = []
    for leaf in leaves_of(value):
        pixels = _pixels(leaf, batch)
        if pixels is None:
            rest.append(leaf)
        else:
            rest.append(f"picture {pixels.shape} {pixels.dtype} {type(leaf).__name__}")
            found.append(pixels)
    return Given(fingerprint(rest), tuple(found))


def _pixels(leaf: Any, batch: bool) -> Pixels | None:
    array = _array(leaf)
    if array is None or (array.dtype != np.uint8 and array.dtype.kind != "f"):
        return None
    rows = array if batch else array[None]
    if rows.ndim == 3 and rows.dtype == np.uint8:
        rows = rows[..., None]
    elif rows.ndim != 4:
        return None
    elif rows.shape[1] in CHANNELS:
        rows = np.moveaxis(rows, 1, -1)
    elif rows.shape[3] not in CHANNELS:
        return None
    num, height, width, channels = rows.shape
    if not num or min(height, width) < SMALLEST:
        return None
    places = _places(height * width, PLACES if batch else ALL_PLACES)
    values = rows[:, places // width, places % width].astype(np.float32)
    return Pixels(tuple(array.shape), str(array.dtype), (num, len(places), channels), values.tobytes())


def _array(leaf: Any) -> npt.NDArray[Any] | None:
    import torch

    if isinstance(leaf, torch.Tensor):
        plain = leaf.layout == torch.strided and leaf.device.type != "meta" and not leaf.is_quantized
        known = plain and leaf.dtype in (torch.uint8, torch.float16, torch.float32, torch.float64)
        return leaf.detach().cpu().numpy() if known else None
    if isinstance(leaf, np.ndarray):
        return leaf
    return np.asarray(leaf) if hasattr(leaf, "__array_interface__") else None


def _places(num: int, most: int) -> npt.NDArray[np.int64]:
    """The same for all pictures of a size, spread at random: at equal distances they would be columns."""
    if num <= most:
        return np.arange(num)
    return np.sort(np.random.RandomState(num % 2**32).choice(num, most, replace=False))
