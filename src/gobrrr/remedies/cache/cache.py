"""Remedies that decode JPEGs at the size asked for (draft mode) or once; and the base of all that keep samples."""

from __future__ import annotations

import math
import os
from typing import Any, ClassVar

from gobrrr.remedies.loader.loader import SHARE, most_said
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.data.library_calls import DECODED, SAVED_BY_DECODING_ONCE
from gobrrr.rules.model.finding import Saving
from gobrrr.rules.verdict.report import Report

AFTER_THE_FIRST = "the figures are of the epochs after the first, which takes as long as before"
"""Note of remedies that keep what the first epoch computes; a trial leaves that epoch out."""
DRAFTED = 0.6
"""Share of decoding that a draft at 1/4 saves: 1600 x 1200 with the resize to 224 x 168 went from 8.5 ms to 2.6."""


def cannot_wait() -> str:
    """Say why pictures cannot be decoded later than Pillow would (pictures.py); empty where they can."""
    try:
        from PIL.JpegImagePlugin import JpegImageFile
    except ImportError:
        return "Pillow is not installed"
    pixels = isinstance(getattr(JpegImageFile, "im", None), property) and "convert" not in vars(JpegImageFile)
    return "" if pixels else "this version of Pillow keeps its pictures otherwise"


def memory_room() -> float:
    """Bytes that what is kept may take in this process: a share of the memory that is free, among the job's processes
    on this machine."""
    import psutil

    said = os.environ.get("LOCAL_WORLD_SIZE", "1")
    ranks = int(said) if said.isascii() and said.isdecimal() else 1
    return SHARE * float(psutil.virtual_memory().available) / max(1, ranks)


class Keeper(Remedy):
    """A remedy that keeps what the first epoch computes, in the program's own process."""

    safety = "exact"
    place = "loader"
    late = True
    unseen = AFTER_THE_FIRST
    said: ClassVar[str]
    """Name in a finding's evidence of what it saves from the second epoch on."""

    def predicts(self, report: Report) -> Saving:
        """Return the saving that a finding states; none where no finding does: then it is only tried by name."""
        saving, said = super().predicts(report), most_said(report, self.codes, self.said)
        return Saving() if said is None else Saving(0.0, min(said, saving.ceiling_ns), saving.ceiling_ns)


class DraftDecoding(Remedy):
    """Pillow's JPEG files that are resized or reduced to half or less, straight away or after convert("RGB" or "L"),
    are decoded at the smallest scale of libjpeg (1/8, 1/4, 1/2) that is not below what is asked for. Size and mode are
    those of the plain program; pixels differ, and the guard says by how much. What is read at
    its full size first is as it was, and so are files that end too early, CMYK, other formats, nearest neighbours and
    files of which the program asked a draft itself."""

    name = "draft_decoding"
    title = "decodes JPEG pictures at a fraction of their size where they are made small next"
    safety = "semantic"
    place = "loader"
    pixels = (4.0, 0.01, 32.0)
    conflicts = ("decoded_once",)
    by_hand = 'picture = Image.open(path)\npicture.draft("RGB", (width, height))  # before convert and resize'

    def probe(self) -> str:
        return cannot_wait()

    def predicts(self, report: Report) -> Saving:
        """Return the saving on what Pillow decodes; at least 0: how small pictures become was not seen."""
        decoding = most_said(report, self.codes, DECODED)
        called_for = any(self.name in found.remedies for found in report.findings)
        if decoding is None or not called_for:
            return Saving()
        most = super().predicts(report).ceiling_ns
        return Saving(0.0, min(most, DRAFTED * decoding), most)

    def apply(self, seams: Seams) -> None:
        from gobrrr.remedies.cache.pictures import Drafts, InWorker, put_in, take_away

        drafts = Drafts(lambda detail: seams.applied(self.name, detail))

        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            if not kwargs.get("num_workers"):
                return kwargs
            seams.applied(self.name, "in the loader's workers")  # they cannot tell
            return {**kwargs, "worker_init_fn": InWorker(drafts, kwargs.get("worker_init_fn"))}

        seams.undo(take_away)
        put_in(drafts)
        seams.at_loader(change)


class DecodedOnce(Keeper):
    """Pillow's JPEG files that are converted to "RGB" or "L", resized or reduced are decoded, and made small, once for
    each file's bytes; the pixels are kept in memory, a quarter of what is free at most, and given as pictures of their
    own. What is drawn comes after: augmentation is what it was. In the program's own process; workers, and what is not
    a whole JPEG file of one of these modes, decode as ever."""

    name = "decoded_once"
    title = "keeps JPEG pictures in memory as they are after decoding and resizing"
    said = SAVED_BY_DECODING_ONCE
    conflicts = ("draft_decoding", "loader_workers", "one_worker", "computed_once")
    by_hand = 'self.pictures = [Image.open(path).convert("RGB").resize(size) for path in paths]'

    def probe(self) -> str:
        return cannot_wait()

    def apply(self, seams: Seams) -> None:
        from gobrrr.remedies.cache.kept_pictures import KeptPictures
        from gobrrr.remedies.cache.pictures import put_in, take_away

        said, lengths = False, {0: 0}

        def told() -> None:
            nonlocal said
            if not said:
                said = True
                seams.applied(self.name)

        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            data = kwargs.get("dataset")
            if kwargs.get("num_workers"):
                seams.declined(self.name, "the loader has workers, each with a memory of its own")
            try:
                lengths[id(data)] = len(data)  # type: ignore[arg-type]
            except (TypeError, NotImplementedError):
                lengths[0] = 1 << 62  # nobody knows
            return kwargs

        seams.undo(take_away)
        put_in(KeptPictures(memory_room(), seams.aside, told, lambda: sum(lengths.values()) or math.inf))
        seams.at_loader(change)
