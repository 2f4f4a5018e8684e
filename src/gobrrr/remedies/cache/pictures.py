"""JPEG pictures of Pillow that are decoded when somebody reads their pixels, in the way of the remedy that put them in:
small where they are made small (Drafts), or once (kept_pictures.py).

It imports Pillow, so only what those remedies put in place imports it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

MODES = ("RGB", "L")
SCALES = (8, 4, 2)
"""Factors by which libjpeg can shrink a picture while it decodes it, the largest first."""
END = b"\xff\xd9"
PADDING, PADDED = b"\0\n\r ", 64
"""Bytes that may follow the end marker, and in how many last bytes the marker is looked for."""
PLAIN = {name: getattr(Image.Image, name) for name in ("convert", "resize", "reduce", "thumbnail")}
"""As Pillow has them."""

_put_in: Way | None = None


class Way(Protocol):
    """How pictures are decoded in this process while it is put in. `over`: it was taken away again."""

    over: bool

    def converted(self, data: bytes, like: Any, mode: str) -> Later:
        """A file's picture in a mode, `like` being what is known of it."""

    def whole(self, data: bytes, mode: str, at_hand: tuple[Any, int] | None = None) -> Any:
        """The picture of a file's bytes, in a mode; nobody else's. `at_hand`: it is decoded, in so many ns."""

    def small(self, asked: Resized | Reduced, data: bytes, like: Any) -> Any:
        """Return the smaller picture asked for, `like` being what is known of it; None where Pillow does it. Raises
        TypeError and ValueError where Pillow would."""


class Drafts:
    """The way of drafts: `told` hears of the first one. A process that is not forked gets it pickled."""

    def __init__(self, told: Callable[[str], None] | None) -> None:
        self._told, self._pid, self.over = told, os.getpid(), False

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_told": None}

    def converted(self, data: bytes, like: Any, mode: str) -> Later:
        return later(data, like, mode)

    def whole(self, data: bytes, mode: str, at_hand: tuple[Any, int] | None = None) -> Any:
        return decoded(data, mode)

    def small(self, asked: Resized | Reduced, data: bytes, like: Any) -> Any:
        """Return the picture made from a draft; None where no draft will do."""
        scale = asked.scale(like.size)
        file = JpegImageFile(io.BytesIO(data))
        if scale > 1:
            file.draft(file.mode, (like.size[0] // scale, like.size[1] // scale))
        if file.decoderconfig != (scale, 0):
            return None
        if self._told is not None and os.getpid() == self._pid:
            self._told(f"the first at 1/{scale} of its size")
            self._told = None
        return asked.of_scaled(PLAIN["convert"](file, like.mode), like.size, scale)


class Later(Image.Image):  # type: ignore[misc, unused-ignore]
    """A JPEG file's picture in the mode asked for, decoded when its pixels are read: then it is a plain Image, whose
    pixels are those of convert(). `__class__` says Image all the time; only type() tells it until then."""

    _data: bytes
    _whole: tuple[Any, int] | None = None
    """Decoded, in so many ns, where that was to be done at once."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return Image.Image

    def load(self) -> Any:
        become(self, whole(self._data, self._mode, self._whole)._im)
        return self.load()  # of a plain Image now

    @property
    def im(self) -> Any:
        self.load()
        return self._im

    @im.setter
    def im(self, im: Any) -> None:
        become(self, im)

    def convert(self, mode: str | None = None, *args: Any, **kwargs: Any) -> Any:
        if mode in (None, self._mode) and not args and not kwargs:
            again = later(self._data, self)
            again._whole = self._whole
            return again
        self.load()
        return self.convert(mode, *args, **kwargs)

    def resize(self, *args: Any, **kwargs: Any) -> Any:
        return self._small("resize", Resized, args, kwargs)

    def reduce(self, *args: Any, **kwargs: Any) -> Any:
        return self._small("reduce", Reduced, args, kwargs)

    def _small(self, name: str, kind: Any, args: Any, kwargs: Any) -> Any:
        found = small(kind, args, kwargs, self._data, self)
        if found is None:
            self.load()
            return getattr(self, name)(*args, **kwargs)
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        self.load()
        return self.__reduce_ex__(protocol)


def become(picture: Later, im: Any) -> None:
    """A plain picture with these pixels."""
    object.__dict__["__class__"].__set__(picture, Image.Image)
    picture.__dict__.pop("_data", None)
    picture.__dict__.pop("_whole", None)
    picture._im = im


def later(data: bytes, like: Any, mode: str = "") -> Later:
    """The picture of a file's bytes, of the size of another and with what is known of it."""
    picture = Later()
    picture._data, picture._mode, picture._size, picture.info = data, mode or like.mode, like.size, known(like)
    return picture


def known(picture: Any) -> dict[Any, Any]:
    """A copy of what the file says beside its pixels, as Pillow gives it to a picture made of another."""
    return {name: each.copy() if isinstance(each, list) else each for name, each in picture.info.items()}


def decoded(data: bytes, mode: str) -> Any:
    """Decode as Pillow does."""
    return PLAIN["convert"](JpegImageFile(io.BytesIO(data)), mode)


def whole(data: bytes, mode: str, at_hand: tuple[Any, int] | None = None) -> Any:
    """The picture of a file's bytes."""
    return decoded(data, mode) if _put_in is None else _put_in.whole(data, mode, at_hand)


class Resized(NamedTuple):
    """Arguments of resize()."""

    size: Any
    resample: Any = None
    box: Any = None
    reducing_gap: Any = None

    def scale(self, full: tuple[int, int]) -> int:
        """The most by which a picture may be divided and have as many pixels as are asked for; 1 for none."""
        left, top, right, bottom = self.box or (0, 0, *full)
        width, height = self.size
        inside = 0 <= left < right <= full[0] and 0 <= top < bottom <= full[1]
        if not inside or min(width, height) < 1 or self.resample == Image.Resampling.NEAREST:
            return 1
        fits = (s for s in SCALES if right - left >= s * width and bottom - top >= s * height)
        return next(fits, 1)

    def of(self, picture: Any) -> Any:
        return picture.resize(*self)

    def of_scaled(self, picture: Any, full: tuple[int, int], scale: int) -> Any:
        """Make the same of a picture that was divided: its last column and row may stand for less than a pixel."""
        return self._replace(box=tuple(each / scale for each in self.box or (0, 0, *full))).of(picture)


class Reduced(NamedTuple):
    """Arguments of reduce()."""

    factor: Any
    box: Any = None

    def factors(self) -> tuple[int, int]:
        across, down = self.factor if isinstance(self.factor, (list, tuple)) else (self.factor, self.factor)
        return across, down

    def scale(self, full: tuple[int, int]) -> int:
        """The most that divides both factors."""
        across, down = self.factors()
        fits = (s for s in SCALES if across % s == 0 == down % s)
        return next(fits, 1) if self.box is None and 1 <= across <= full[0] and 1 <= down <= full[1] else 1

    def of(self, picture: Any) -> Any:
        return picture.reduce(*self)

    def of_scaled(self, picture: Any, full: tuple[int, int], scale: int) -> Any:
        across, down = self.factors()
        return picture.reduce((across // scale, down // scale))


def small(kind: Any, args: Any, kwargs: Any, data: bytes, like: Any) -> Any:
    """The picture of a file's bytes made small; None where Pillow is to do it, or takes no such arguments."""
    try:
        found = None if _put_in is None else _put_in.small(kind(*args, **kwargs), data, like)
    except (TypeError, ValueError):
        return None
    if found is not None:
        found.info = known(like)
    return found


def whole_data(file: Any) -> bytes | None:
    """Return all of a file of which nobody has read the pixels or asked a draft, where it comes to its proper end: else
    decoding it says so, now. Of the kinds that libjpeg scales as Pillow says."""
    unread = type(file) is JpegImageFile and file._im is None and len(file.tile) == 1 and file.decoderconfig == ()
    if not unread or file.mode not in MODES:
        return None
    try:
        at = file.fp.tell()
        file.fp.seek(0)
        data = file.fp.read()
        file.fp.seek(at)
    except (OSError, ValueError, AttributeError):
        return None
    return data if isinstance(data, bytes) and data[-PADDED:].rstrip(PADDING).endswith(END) else None


# What takes the place of JpegImageFile's own


def _convert(self: Any, mode: str | None = None, *args: Any, **kwargs: Any) -> Any:
    wanted = mode or self.mode
    data = None if args or kwargs or wanted not in MODES else whole_data(self)
    if data is None:
        return PLAIN["convert"](self, mode, *args, **kwargs)
    found = later(data, self, wanted) if _put_in is None else _put_in.converted(data, self, wanted)
    _leave(self, data)
    return found


def _resize(self: Any, *args: Any, **kwargs: Any) -> Any:
    return _small(self, "resize", Resized, args, kwargs)


def _reduce(self: Any, *args: Any, **kwargs: Any) -> Any:
    return _small(self, "reduce", Reduced, args, kwargs)


def _small(self: Any, name: str, kind: Any, args: Any, kwargs: Any) -> Any:
    data = whole_data(self)
    found = small(kind, args, kwargs, data, self) if data is not None else None
    if found is None or data is None:
        return PLAIN[name](self, *args, **kwargs)
    _leave(self, data)
    return found


def _thumbnail(self: Any, size: Any, resample: Any = Image.Resampling.BICUBIC, reducing_gap: Any = 2.0) -> None:
    """Pillow's own, which drafts by itself; without a gap it does not, and puts the small pixels into the file."""
    if reducing_gap is None:
        self.load()
    PLAIN["thumbnail"](self, size, resample, reducing_gap)


def _leave(file: Any, data: bytes) -> None:
    """Leave it as load() does: its file is not needed any more, and no draft is possible."""
    if file._exclusive_fp and file._close_exclusive_fp_after_loading:
        file.fp.close()
    file.fp, file.decoderconfig = io.BytesIO(data), (1, 0)


OURS = {"convert": _convert, "resize": _resize, "reduce": _reduce, "thumbnail": _thumbnail}


def put_in(way: Way) -> None:
    """Let this process decode pictures that way."""
    global _put_in
    _put_in = way
    for name, function in OURS.items():
        setattr(JpegImageFile, name, function)


def take_away() -> None:
    """Pictures that were opened before are decoded as Pillow does, whenever they are read."""
    global _put_in
    if _put_in is not None:
        _put_in.over = True
        _put_in = None
        for name in OURS:
            delattr(JpegImageFile, name)


class InWorker:
    """A loader's worker_init_fn: what it does in a process that was not forked, and then the program's own."""

    def __init__(self, way: Way, own: Any) -> None:
        self._way, self._own = way, own

    def __call__(self, worker: int) -> None:
        if not self._way.over:
            put_in(self._way)
        if self._own is not None:
            self._own(worker)
