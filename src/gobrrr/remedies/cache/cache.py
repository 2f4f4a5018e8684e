"""Remedies that keep what the first epoch makes of samples, in the program's own process."""

from __future__ import annotations

import math
import os
from functools import partial
from typing import Any, ClassVar

from gobrrr.remedies.loader.loader import SHARE, most_said
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.data.library_calls import SAVED_BY_DECODING_ONCE
from gobrrr.rules.data.loader_advice import SAVED_BY_KEEPING
from gobrrr.rules.model.finding import Saving
from gobrrr.rules.verdict.report import Report

AFTER_THE_FIRST = "the figures are of the epochs after the first, which takes as long as before"
"""Note of remedies that keep what the first epoch computes; a trial leaves that epoch out."""


def memory_room() -> float:
    """Bytes that what is kept may take in this process: a share of the memory that is free, among the job's processes
    on this machine."""
    import psutil

    said = os.environ.get("LOCAL_WORLD_SIZE", "1")
    ranks = int(said) if said.isascii() and said.isdecimal() else 1
    return SHARE * float(psutil.virtual_memory().available) / max(1, ranks)


class Keeper(Remedy):
    """A remedy that keeps what the first epoch computes, in the program's own process."""

    place = "loader"
    late = True
    unseen = AFTER_THE_FIRST
    said: ClassVar[str]
    """Name in a finding's evidence of what it saves from the second epoch on."""

    def predicts(self, report: Report) -> Saving:
        """Return the saving that a finding states; none where no finding does: then it is only tried by name."""
        saving, said = super().predicts(report), most_said(report, self.codes, self.said)
        return Saving() if said is None else Saving(0.0, min(said, saving.ceiling_ns), saving.ceiling_ns)


class DecodedOnce(Keeper):
    """Pillow's JPEG files in RGB or grey are decoded once for each file's bytes; the pixels are kept in memory, a
    quarter of what is free at most, and copied into each picture. Resizing and what is drawn come after, as ever. In
    the program's own process; workers, and what is not a whole JPEG file of one of these modes, decode as ever."""

    name = "decoded_once"
    title = "keeps JPEG pictures in memory as they are after decoding"
    said = SAVED_BY_DECODING_ONCE
    conflicts = ("loader_workers", "one_worker", "computed_once")
    by_hand = 'self.pictures = [Image.open(path).convert("RGB").resize(size) for path in paths]'

    def probe(self) -> str:
        try:
            from PIL.JpegImagePlugin import JpegImageFile
        except ImportError:
            return "Pillow is not installed"
        return "this version of Pillow decodes otherwise" if "load" in vars(JpegImageFile) else ""

    def apply(self, seams: Seams) -> None:
        from gobrrr.remedies.cache.kept_pictures import KeptPictures

        lengths = {0: 0}

        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            data = kwargs.get("dataset")
            if kwargs.get("num_workers"):
                seams.declined(self.name, "the loader has workers, each with a memory of its own")
            try:
                lengths[id(data)] = len(data)  # type: ignore[arg-type]
            except (TypeError, NotImplementedError):
                lengths[0] = 1 << 62  # nobody knows
            return kwargs

        told = partial(seams.applied, self.name)
        kept = KeptPictures(memory_room(), seams.aside, told, lambda: sum(lengths.values()) or math.inf)
        seams.undo(kept.take_away)
        kept.put_in()
        seams.at_loader(change)


class ComputedOnce(Keeper):
    """For DataLoaders without workers whose samples are the same each time, by all that kept_samples.py looks at. They
    stay in memory, a quarter of what is free at most. A data set that the program changes between epochs begins anew;
    one that turns out to give other samples ends the remedy, with an error where a kept sample may have been given
    instead. Loaders and data sets are the program's own."""

    name = "computed_once"
    title = "keeps samples in memory that are computed anew in each epoch"
    said = SAVED_BY_KEEPING
    unseen = (
        f"{AFTER_THE_FIRST}; samples that depend on files, the clock or the environment may stay what they were; a "
        "data set that prints, logs or counts in __getitem__ does so twice for some samples at first, and later seldom"
    )
    conflicts = ("batched_fetch", "loader_workers", "one_worker", "decoded_once")
    by_hand = "loader = DataLoader([dataset[i] for i in range(len(dataset))], ...)"

    def probe(self) -> str:
        from torch.utils.data._utils import fetch

        return "" if hasattr(fetch, "_MapDatasetFetcher") else "loaders of this torch fetch otherwise"

    def apply(self, seams: Seams) -> None:
        from gobrrr.remedies.cache.kept_datasets import keep_samples

        keep_samples(self.name, seams, memory_room())
