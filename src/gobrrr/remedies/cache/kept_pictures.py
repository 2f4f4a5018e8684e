"""JPEG pictures of Pillow that are decoded the first time and kept, by the bytes of their file: another file is another
picture. It imports Pillow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from PIL import Image
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile as Plain
from torch.utils.data import get_worker_info

JpegImageFile: Any = Plain
BANDS = {"RGB": 3, "L": 1}
END = b"\xff\xd9"
PADDING, PADDED = b"\0\n\r ", 64
"""Bytes that may follow the end marker, and in how many last bytes the marker is looked for."""


class KeptPictures:
    """Decodes in this process from `put_in` to `take_away`, and keeps what comes of it. `room`: bytes that the pictures
    may take; `aside` is told how many ns it took to decode what is kept from then on, `told` of the first. `most()`:
    pictures that there are at most, as far as the program's data sets say; of more, files are not what comes again."""

    def __init__(self, room: float, aside: Callable[[int], object], told: Callable[[], None],
                 most: Callable[[], float]) -> None:  # fmt: skip
        self._pid, self._room, self._aside, self._told, self._most = os.getpid(), room, aside, told, most
        self._kept: dict[bytes, bytes] = {}
        self._decoded = 0

    def put_in(self) -> None:
        """Let JPEG files be loaded this way."""
        JpegImageFile.load = lambda file: self._loaded(file)

    def take_away(self) -> None:
        """Let them be loaded as Pillow does."""
        del JpegImageFile.load

    def _loaded(self, file: Any) -> Any:
        """Return what Pillow's load() returns; a file that was decoded before is given those pixels."""
        data = _whole(file) if get_worker_info() is None and os.getpid() == self._pid else None
        if data is None:
            return ImageFile.load(file)
        key = blake2b(data, digest_size=16).digest()
        if (pixels := self._kept.get(key)) is not None:
            file.im, file.tile = Image.frombytes(file.mode, file.size, pixels).im, []
            if file._exclusive_fp and file._close_exclusive_fp_after_loading:
                file.fp.close()
            file.fp = None
            return Image.Image.load(file)
        began = time.perf_counter_ns()
        found = ImageFile.load(file)
        self._keep(key, file, time.perf_counter_ns() - began)
        return found

    def _keep(self, key: bytes, file: Any, spent: int) -> None:
        """Keep its pixels while there is room: the first pictures stay."""
        self._decoded += 1
        needs = file.size[0] * file.size[1] * BANDS[file.mode]
        if needs <= self._room and self._decoded <= 2 * self._most():
            self._room -= needs
            if not self._kept:
                self._told()
            self._kept[key] = file.tobytes()
            self._aside(spent)


def _whole(file: Any) -> bytes | None:
    """Return all of a file of which nobody has read the pixels or asked a draft, where it comes to its proper end: else
    decoding it says so."""
    if type(file) is not JpegImageFile or len(file.tile) != 1 or file.decoderconfig != () or file.mode not in BANDS:
        return None
    try:
        at = file.fp.tell()
        file.fp.seek(0)
        data = file.fp.read()
        file.fp.seek(at)
    except (OSError, ValueError, AttributeError):
        return None
    return data if isinstance(data, bytes) and data[-PADDED:].rstrip(PADDING).endswith(END) else None
