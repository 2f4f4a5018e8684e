"""JPEG pictures that are decoded, and made small, the first time and kept: by the bytes of their file, so that another
file is another picture.

It imports Pillow, as pictures.py does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from PIL import Image
from torch.utils.data import get_worker_info

from gobrrr.remedies.pictures import Reduced, Resized, decoded

Key = tuple[bytes, str, str]
"""Digest of the file's bytes, mode, what was asked of it."""
Pixels = tuple[tuple[int, int], bytes]
WHOLE = ""


class KeptPictures:
    """The way of pictures that are decoded once. `room`: bytes that they may take; `aside` is told how many ns it took
    to make a picture that is kept from then on, `told` that one was."""

    def __init__(self, room: float, aside: Callable[[int], None], told: Callable[[], None]) -> None:
        self.over = False
        self._room, self._aside, self._told = room, aside, told
        self._kept: dict[Key, Pixels] = {}

    def whole(self, data: bytes, mode: str) -> Any:
        return self._picture(WHOLE, data, mode, lambda: decoded(data, mode))

    def small(self, asked: Resized | Reduced, data: bytes, like: Any) -> Any:
        mode = like.mode
        return self._picture(repr(asked), data, mode, lambda: asked.of(decoded(data, mode)))

    def _picture(self, asked: str, data: bytes, mode: str, make: Callable[[], Any]) -> Any:
        """A picture of its own each time: what the program writes into one is in no other."""
        if self.over or get_worker_info() is not None:
            return make()
        key = blake2b(data, digest_size=16).digest(), mode, asked
        if key not in self._kept:
            began = time.perf_counter_ns()
            picture = make()
            pixels = picture.size, picture.tobytes()
            if len(pixels[1]) > self._room:
                return picture  # those that came first are kept
            self._kept[key] = pixels
            self._room -= len(pixels[1])
            self._aside(time.perf_counter_ns() - began)
            self._told()
        size, raw = self._kept[key]
        return Image.frombytes(mode, size, raw)
