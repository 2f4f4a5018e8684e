"""How much of a loader's wait does Pillow spend on decoding pictures, and which remedies are there?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gobrrr.ledger.model.ledger import Ledger, LineGroup, WorkerGroup
from gobrrr.recording.model.facts import LoaderFacts
from gobrrr.rules.model.cores import worker_groups
from gobrrr.rules.model.evidence import ratio, time
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.model.lines import Functions
from gobrrr.units import share

DECODING = Functions(("PIL.ImageFile.",), frozenset({"load"}))
RESIZING = Functions(("PIL.Image.",), frozenset({"resize", "reduce", "thumbnail"}))
JPEG, OTHERS = "PIL.JpegImagePlugin.", ("PIL.PngImagePlugin.", "PIL.WebPImagePlugin.", "PIL.TiffImagePlugin.")
LEAST = 0.2
"""Share of the loading from which decoding is named: what a draft saves of less is hardly a tenth of the wait."""
TRANSFORMS = Functions(
    ("torchvision.transforms.", "albumentations."), frozenset({"forward", "transform", "__call__", "apply"})
)
WRAPPERS = frozenset(
    {
        "Compose",
        "Transform",
        "BasicTransform",
        "DualTransform",
        "ImageOnlyTransform",
        "RandomApply",
        "RandomOrder",
        "RandomChoice",
        "Sequential",
    }
)
"""Transforms that call others."""
TELLING = 0.05
"""Share of the loading from which a transform is named."""
DECODED, DRAFT, ONCE = "decoding", "draft_decoding", "decoded_once"
SAVED_BY_DECODING_ONCE = "saved_by_decoding_once"
KEEP = "Keep what decoding and resizing give, before anything is drawn (remedy decoded_once). "


class Pictures(NamedTuple):
    """Shares of the loading, which may overlap: a file may be decoded inside its resize."""

    decoding: float
    resizing: float
    jpeg: bool
    """True where JPEG and no other format was seen."""


def pictures(ledger: Ledger, loader: LoaderFacts) -> Pictures | None:
    """Return the shares of decoding and resizing in the sampled lines of the loader, or of its workers; None where
    nothing was sampled, or decoding is little of it."""
    lines = loading_lines(ledger, loader)
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


def loading_lines(ledger: Ledger, loader: LoaderFacts) -> Sequence[WorkerGroup | LineGroup]:
    """Sampled lines of the loader's workers, or of the main process where they were not sampled."""
    groups = worker_groups(ledger, loader) if loader.num_workers else []
    ours = [group for group in groups if group.kind in ("getitem", "collate")]
    return ours or [line for line in ledger.lines if line.phase == "data"]


def transforms(ledger: Ledger, loader: LoaderFacts) -> dict[str, float]:
    """Shares of the loading that a library's transforms have, by their class, the largest first: those of one Compose
    are one line of the user's."""
    lines = loading_lines(ledger, loader)
    everything = sum(line.ns for line in lines)
    found: dict[str, float] = {}
    for line in lines:
        named = [(name.split(".")[-2].lstrip("_"), ns) for name, ns in line.libraries if TRANSFORMS.has(name)]
        most = {kind: max(ns for each, ns in named if each == kind) for kind, _ in named if kind not in WRAPPERS}
        for kind, ns in most.items():
            found[kind] = found.get(kind, 0.0) + ns / everything
    return {kind: each for kind, each in sorted(found.items(), key=lambda item: -item[1]) if each >= TELLING}


def with_transforms(found: Finding, ledger: Ledger, loader: LoaderFacts) -> Finding:
    """The finding, with each transform's share where a library has two or more of them."""
    shares = transforms(ledger, loader)
    if len(shares) < 2:
        return found
    told = ", ".join(f"{kind} {share(each)}" for kind, each in shares.items())
    evidence = found.evidence | {f"transform {kind}": ratio(each) for kind, each in shares.items()}
    return msgspec.structs.replace(found, message=f"{found.message}; of its transforms {told}", evidence=evidence)


def with_pictures(found: Finding, ledger: Ledger, loader: LoaderFacts, wait_ns: float) -> Finding:
    """The finding, with what decoding has of it; without the remedy for that where it has little or nothing is
    resized."""
    seen = pictures(ledger, loader)
    drafts = seen is not None and seen.resizing > 0
    again = seen is not None and seen.jpeg and not loader.num_workers and loader.comes_again
    helps = {DRAFT: drafts, ONCE: again}
    remedies = tuple(name for name in found.remedies if helps.get(name, True))
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
        advice=f"{KEEP if again else ''}{advice}. {found.advice}",
        evidence=found.evidence
        | {DECODED: time(seen.decoding * wait_ns), "resizing_share": ratio(seen.resizing)}
        | ({SAVED_BY_DECODING_ONCE: time(max(seen.decoding, seen.resizing) * wait_ns)} if again else {}),
        remedies=remedies,
    )
