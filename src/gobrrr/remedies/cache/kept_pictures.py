"""JPEG pictures that are decoded, and made small, the first time and kept: by the bytes of their file, so that another
file is another picture.

What was made of a file is kept as long as the same is asked of it; where another is asked (a box that is drawn anew)
the whole picture is kept instead, and what is asked is made of that. It imports Pillow, as pictures.py does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

from PIL import Image
from torch.utils.data import get_worker_info

from gobrrr.remedies.cache.pictures import Later, Reduced, Resized, decoded, later

Key = tuple[bytes, str]
"""Digest of the file's bytes, mode."""
WHOLE = ""
BANDS = {"RGB": 3, "L": 1}


class Kept(NamedTuple):
    """`asked`: what was made of the whole picture, or WHOLE."""

    asked: str
    size: tuple[int, int]
    raw: bytes

    def picture(self, mode: str) -> Any:
        """Return a picture of its own each time: what the program writes into one is in no other."""
        return Image.frombytes(mode, self.size, self.raw)


class KeptPictures:
    """The way of pictures that are decoded once. `room`: bytes that they may take; `aside` is told how many ns it took
    to decode what is kept from then on, `told` that one was. `most()`: pictures that there are at most, as far as the
    program's data sets say; of more, files are not what comes again."""

    def __init__(self, room: float, aside: Callable[[int], object], told: Callable[[], None],
                 most: Callable[[], float]) -> None:  # fmt: skip
        self.over, self._pid = False, os.getpid()
        self._room, self._aside, self._told, self._most = room, aside, told, most
        self._kept: dict[Key, Kept] = {}
        self._decoded = 0

    def converted(self, data: bytes, like: Any, mode: str) -> Later:
        """Return a picture whose pixels wait for what is asked of them. A file not seen before is decoded now, so that
        a fault in it shows where the program looks for it."""
        picture = later(data, like, mode)
        if self._is_ours() and _key(data, mode) not in self._kept:
            began = time.perf_counter_ns()
            picture._whole = decoded(data, mode), time.perf_counter_ns() - began
        return picture

    def whole(self, data: bytes, mode: str, at_hand: tuple[Any, int] | None = None) -> Any:
        return self._made(None, data, mode, at_hand)

    def small(self, asked: Resized | Reduced, data: bytes, like: Any) -> Any:
        return self._made(asked, data, like.mode, getattr(like, "_whole", None))

    def _made(self, asked: Resized | Reduced | None, data: bytes, mode: str, at_hand: tuple[Any, int] | None) -> Any:
        """Return the picture asked for, the whole one for None. `at_hand`: it is decoded already, in so many ns."""
        name = WHOLE if asked is None else repr(asked)
        key = _key(data, mode) if self._is_ours() else None
        kept = self._kept.get(key) if key is not None else None
        if kept is not None and kept.asked == name:
            return kept.picture(mode)
        if kept is not None and kept.asked == WHOLE and asked is not None:
            return asked.of(kept.picture(mode))
        began = time.perf_counter_ns()
        whole, spent = at_hand or (decoded(data, mode), 0)
        decoding = spent + time.perf_counter_ns() - began
        made = asked.of(whole) if asked is not None else whole.copy() if at_hand else whole
        both = spent + time.perf_counter_ns() - began
        if key is not None and self._keep(key, kept, name, made, whole):
            self._aside(both if kept is None else decoding)  # what is made of a whole one is made again each time
            self._told()
        return made

    def _keep(self, key: Key, before: Kept | None, asked: str, made: Any, whole: Any) -> bool:
        """Keep the picture made, or the whole one if another was asked for before; say whether it is kept. The first
        pictures stay."""
        self._decoded += 1
        picture, name = (made, asked) if before is None else (whole, WHOLE)
        width, height = picture.size
        needs = width * height * BANDS[key[1]] - (0 if before is None else len(before.raw))
        if needs > self._room or self._decoded > 2 * self._most():
            return False
        self._room -= needs
        self._kept[key] = Kept(name, picture.size, picture.tobytes())
        return True

    def _is_ours(self) -> bool:
        """Say whether this process may keep pictures: one that the program forks would keep as much again."""
        return not self.over and get_worker_info() is None and os.getpid() == self._pid


def _key(data: bytes, mode: str) -> Key:
    return blake2b(data, digest_size=16).digest(), mode
