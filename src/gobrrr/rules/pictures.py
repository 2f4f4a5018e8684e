"""What of a loader's wait Pillow spends on decoding pictures, and what may be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gobrrr.ledger.model import Ledger, LineGroup, WorkerGroup
from gobrrr.recording.facts import LoaderFacts
from gobrrr.rules.cores import worker_groups
from gobrrr.rules.evidence import ratio, time
from gobrrr.rules.lines import Functions
from gobrrr.rules.model import Finding
from gobrrr.units import share

DECODING = Functions(("PIL.ImageFile.",), frozenset({"load"}))
RESIZING = Functions(("PIL.Image.",), frozenset({"resize", "reduce", "thumbnail"}))
JPEG, OTHERS = "PIL.JpegImagePlugin.", ("PIL.PngImagePlugin.", "PIL.WebPImagePlugin.", "PIL.TiffImagePlugin.")
LEAST = 0.2
"""Share of the loading from which decoding is named: what a draft saves of less is hardly a tenth of the wait."""
DECODED, DRAFT = "decoding", "draft_decoding"


class Pictures(NamedTuple):
    """Shares of the loading, which may overlap: a file may be decoded inside its resize."""

    decoding: float
    resizing: float
    jpeg: bool
    """Whether nothing else was seen beside it."""


def pictures(ledger: Ledger, loader: LoaderFacts) -> Pictures | None:
    """Of the sampled lines of the loader, or of its workers; None where none were, or decoding is little of them."""
    groups = worker_groups(ledger, loader) if loader.num_workers else []
    ours = [group for group in groups if group.kind in ("getitem", "collate")]
    lines: Sequence[WorkerGroup | LineGroup] = ours or [line for line in ledger.lines if line.phase == "data"]
    everything = sum(line.ns for line in lines)
    if everything <= 0:
        return None
    decoding, resizing = (
        sum(max((ns for name, ns in line.libraries if kind.has(name)), default=0.0) for line in lines) / everything
        for kind in (DECODING, RESIZING)
    )
    names = {name for line in lines for name, _ in line.libraries}
    only = any(name.startswith(JPEG) for name in names) and not any(name.startswith(OTHERS) for name in names)
    return Pictures(min(1.0, decoding), min(1.0, resizing), only) if decoding >= LEAST else None


def with_pictures(found: Finding, ledger: Ledger, loader: LoaderFacts, wait_ns: float) -> Finding:
    """The finding, with what decoding has of it; without the remedy for that where it has little or nothing is
    resized."""
    seen = pictures(ledger, loader)
    drafts = seen is not None and seen.resizing > 0
    remedies = tuple(name for name in found.remedies if drafts or name != DRAFT)
    if seen is None:
        return msgspec.structs.replace(found, remedies=remedies)
    what = "JPEG" if seen.jpeg else "pictures"
    advice = (
        "Where JPEG files are made half as large or less, decode them small (Image.draft before convert and resize: "
        "other pixels)"
        if drafts
        else "Where an array is what is wanted, simplejpeg decodes JPEG straight into one, bit for bit the same"
    )
    return msgspec.structs.replace(
        found,
        message=f"{found.message}: {share(seen.decoding)} of it is Pillow decoding {what}",
        advice=f"{advice}. {found.advice}",
        evidence=found.evidence | {DECODED: time(seen.decoding * wait_ns), "resizing_share": ratio(seen.resizing)},
        remedies=remedies,
    )
