"""Which calls of libraries make the samples, and which cheaper call, remedy or setting is known?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Ledger, LineGroup, WorkerGroup
from gobrrr.recording.model.facts import LoaderFacts, SourceFacts
from gobrrr.rules.model.cores import making
from gobrrr.rules.model.evidence import count, ratio, time
from gobrrr.rules.model.finding import Cause, amended
from gobrrr.rules.model.lines import Functions, below
from gobrrr.units import share

DECODING = Functions(("PIL.ImageFile.",), frozenset({"load"}))
RESIZING = Functions(("PIL.Image.",), frozenset({"resize", "reduce", "thumbnail"}))
JPEG, OTHERS = "PIL.JpegImagePlugin.", ("PIL.PngImagePlugin.", "PIL.WebPImagePlugin.", "PIL.TiffImagePlugin.")
LEAST_DECODING = 0.2
"""Share of the loading from which decoding is named: what a draft saves of less is hardly a tenth of the wait."""
TRANSFORMS = Functions(
    ("torchvision.transforms.", "albumentations."), frozenset({"forward", "transform", "__call__", "apply"})
)
WRAPPERS = frozenset(
    {"Compose", "Transform", "BasicTransform", "DualTransform", "ImageOnlyTransform", "RandomApply", "RandomOrder",
     "RandomChoice", "Sequential"}
)  # fmt: skip
"""Transforms that call others."""
TELLING = 0.05
"""Share of the loading from which a transform is named."""
DECODED, DRAFT, ONCE, KEEPER = "decoding", "draft_decoding", "decoded_once", "computed_once"
SAVED_BY_DECODING_ONCE = "saved_by_decoding_once"
KEEP = "Keep what decoding gives, before anything is drawn (remedy decoded_once). "


class Pictures(NamedTuple):
    """Shares of the loading, which may overlap: a file may be decoded inside its resize."""

    decoding: float
    resizing: float
    jpeg: bool
    """True where JPEG and no other format was seen."""


def pictures(ledger: Ledger, loader: LoaderFacts) -> Pictures | None:
    """Return the shares of decoding and resizing in the sampled lines of the loading; None where decoding is little."""
    lines, everything = loading_lines(ledger, loader)
    decoding, resizing = (
        sum(max((ns for name, ns in line.libraries if kind.has(name)), default=0.0) for line in lines) / everything
        for kind in (DECODING, RESIZING)
    )
    names = {name for line in lines for name, _ in line.libraries}
    only = any(name.startswith(JPEG) for name in names) and not any(name.startswith(OTHERS) for name in names)
    return Pictures(min(1.0, decoding), min(1.0, resizing), only) if decoding >= LEAST_DECODING else None


def loading_lines(ledger: Ledger, loader: LoaderFacts) -> tuple[Sequence[WorkerGroup | LineGroup], float]:
    """(sampled lines of the loader's workers, or of the main process where they were not sampled; ns of all)."""
    main = [line for line in ledger.lines if line.phase == "data"]
    lines: Sequence[WorkerGroup | LineGroup] = (loader.num_workers and making(ledger, loader)) or main
    return lines, sum(line.ns for line in lines) or 1.0


def transforms(ledger: Ledger, loader: LoaderFacts) -> dict[str, float]:
    """Shares of the loading that a library's transforms have, by their class, the largest first: those of one Compose
    are one line of the user's."""
    lines, everything = loading_lines(ledger, loader)
    found: dict[str, float] = {}
    for line in lines:
        named = [(name.split(".")[-2].lstrip("_"), ns) for name, ns in line.libraries if TRANSFORMS.has(name)]
        most = {kind: max(ns for each, ns in named if each == kind) for kind, _ in named if kind not in WRAPPERS}
        for kind, ns in most.items():
            found[kind] = found.get(kind, 0.0) + ns / everything
    return {kind: each for kind, each in sorted(found.items(), key=lambda item: -item[1]) if each >= TELLING}


def with_transforms(found: Cause, ledger: Ledger, loader: LoaderFacts) -> Cause:
    """The finding, with each transform's share where a library has two or more of them."""
    shares = transforms(ledger, loader)
    if len(shares) < 2:
        return found
    told = ", ".join(f"{kind} {share(each)}" for kind, each in shares.items())
    evidence = {f"transform {kind}": ratio(each) for kind, each in shares.items()}
    return amended(found, message=f"; of its transforms {told}", evidence=evidence)


def with_pictures(found: Cause, ledger: Ledger, loader: LoaderFacts, wait_ns: float) -> Cause:
    """The finding, with what decoding has of it; without the remedy for that where it has little or nothing is
    resized."""
    seen = pictures(ledger, loader)
    drafts = seen is not None and seen.resizing > 0
    again = seen is not None and seen.jpeg and not loader.num_workers and loader.comes_again
    found = replace(found, vain=(*found.vain, *([] if drafts else [DRAFT]), *([] if again else [ONCE])))
    if seen is None:
        return found
    what = "JPEG" if seen.jpeg else "pictures"
    advice = (
        "Where JPEG files are made half as large or less, decode them small (Image.draft before convert and resize: "
        "other pixels)"
        if drafts
        else "Where an array is what is wanted, simplejpeg decodes JPEG straight into one, bit for bit the same"
    )
    return amended(
        found,
        message=f"; {share(seen.decoding)} of it is Pillow decoding {what}",
        advice=f"{KEEP if again else ''}{advice}.",
        evidence={DECODED: time(seen.decoding * wait_ns), "resizing_share": ratio(seen.resizing)}
        | ({SAVED_BY_DECODING_ONCE: time(seen.decoding * wait_ns)} if again else {}),
    )


LEAST_NAMED = 0.3
"""Share of the loading from which they are named (proposed)."""


class Known(NamedTuple):
    """Calls of one kind, and what a person does instead of one of them for each sample; idioms (BRR320) say others."""

    what: str
    calls: tuple[Functions, ...]
    instead: str


KNOWN = (
    Known("parsing text", (Functions(("ast.", "csv.", "yaml.", "xml.", "configparser.")),),
          "Parse all records once and keep arrays (NumPy, Arrow): text is parsed anew whenever it is asked for."),
    Known("unpacking", (Functions(("gzip.", "bz2.", "lzma.", "_compression.")),),
          "Unpack once: an archive is unpacked anew for every sample that is taken out of it."),
    Known("working on sound", (Functions(("librosa.", "torchaudio.", "resampy.", "audioread.")),),
          "Resample once and store that; make the spectrograms of a whole batch at once, in the step."),
)  # fmt: skip


def with_libraries(found: Cause, ledger: Ledger, loader: LoaderFacts, place: str = "advice") -> Cause:
    """The finding, with the costliest kind of calls that a cheaper way is known of; `place`: where that is told."""
    lines, everything = loading_lines(ledger, loader)
    spent = {known: sum(below(line, known.calls)[0] for line in lines) for known in KNOWN}
    known = max(spent, key=lambda each: spent[each])
    part = spent[known] / everything
    if part < LEAST_NAMED:
        return found
    said = {"message": f"; {share(part)} of it {known.what}", place: known.instead}
    return amended(found, **said, evidence={known.what: ratio(part)})


STREAM, TABLE, TARS, STREAMING = "datasets stream", "datasets", "webdataset", "streaming"
"""Kinds of capture.facts.loader_facts."""
ROWS = (
    Functions(("datasets.formatting.",)),
    Functions(("torch.utils.data._utils.collate.",), frozenset({"collate_float_fn", "collate_int_fn"})),
)
"""Making rows of Arrow's columns; numbers of Python that become tensors again."""
DECODERS = Functions(("datasets.features.image.", "datasets.features.audio.", "datasets.features.video.", "PIL."))
"""Decoding below the first of `ROWS`, whatever the format: it is not making rows."""
FETCHING = ("BRR402", "BRR405")
"""Findings that fetching more at once, or further ahead, mends."""
LEAST_ROWS = 0.3
"""Share of the loading from which rows are worth another format (proposed)."""
FETCHED_AHEAD = 8
"""Batches that StreamingDataset fetches ahead where nothing is said: with one of them an epoch took 2.2 times as
long."""
MORE_SHARDS = {
    STREAM: "to_iterable_dataset(num_shards={0}), or {0} files (shuffle() of datasets 5 makes one of ten: "
    "max_buffer_input_shards)",
    TARS: "{0} tar files (wds.ShardWriter(maxcount=...) with fewer samples in each)",
}


def most_workers(loader: LoaderFacts) -> int | None:
    """Where a shard is one worker's, workers beyond the shards have nothing to do; None where there is no such end."""
    source = loader.source
    if source is None or source.kind not in MORE_SHARDS or not source.shares:
        return None
    return source.shards or None


def shared_out(loader: LoaderFacts) -> str:
    """Say what else workers need where samples have no indices to be shared out by."""
    source = loader.source
    if not loader.stream or (source and source.shares and source.kind != TARS):
        return ""
    if source and source.shares:
        return "Where with_epoch(n) ends an epoch divide n by the number of workers: each of them counts."
    return (
        "The data set is a stream: let each worker give its own part (torch.utils.data.get_worker_info), or every "
        "sample comes once from each of them."
    )


def with_formats(code: str, found: Cause, ledger: Ledger, loader: LoaderFacts, wanted: int = 0) -> Cause:
    """What rule `code` found, with what to set at the library that the samples come from; `wanted`: workers that would
    help."""
    source, told = loader.source, shared_out(loader) if code in FETCHING else ""
    if source is None:
        return replace(found, advice=f"{found.advice} {told}") if told else found
    part = rows_share(ledger, loader)
    rows = _rows(code, source, loader, part)
    mended = code == "BRR403" and rows and loader.collate_span is None  # torch's own collate: none to write
    shards, advice = _shards(source, loader, wanted), "" if mended else found.advice
    most = most_workers(loader)
    lacking = most is not None and wanted > most  # more workers bring nothing before there are more shards
    order = (shards, advice) if lacking else (advice, shards)
    said = (rows, *order, *_settings(code, source, loader), told)
    told_of = {"rows_share": ratio(part)} if rows and part >= LEAST_ROWS else {}
    told_of |= {"shards": count(source.shards)} if source.shards else {}
    return replace(found, advice=" ".join(filter(None, said)), evidence=found.evidence | told_of)


def _rows(code: str, source: SourceFacts, loader: LoaderFacts, part: float) -> str:
    """Arrays, and those of a batch at once: short rows that are formatted one by one cost more than lists do."""
    collated = code == "BRR403" and source.kind == TABLE and source.numbers
    if code not in ("BRR401", "BRR403") or (part < LEAST_ROWS and not collated):
        return ""
    numpy = "" if source.format else '.with_format("numpy")'
    if source.kind == STREAM and loader.batch_size:
        batches = f"dataset{numpy}.batch({loader.batch_size}) and DataLoader(..., batch_size=None)"
        return f"Take rows as arrays, a batch at once: {batches}."
    if source.kind == TABLE and source.wrapped and loader.one_by_one:
        return f"Take the rows of a batch at once: a __getitems__(indices) that reads dataset{numpy}[indices]."
    return f"Take rows as arrays, no lists of Python numbers: dataset{numpy}." if source.kind == TABLE and numpy else ""


def _settings(code: str, source: SourceFacts, loader: LoaderFacts) -> list[str]:
    """Return advice on settings of the library that hold it up."""
    said: list[str] = []
    if code not in FETCHING and source.kind != TARS:
        return said
    if source.kind == TARS and loader.num_workers and not loader.batch_size and not source.batched:
        said.append("Batch inside the pipeline (.batched(n)): workers hand over one sample after the other.")
    ahead = FETCHED_AHEAD * (loader.batch_size or 0)
    if source.kind == STREAMING and source.remote and source.predownload is not None and source.predownload < ahead:
        given = "" if source.batch_size == loader.batch_size else f"batch_size={loader.batch_size}, "
        said.append(f"StreamingDataset({given}predownload={ahead}): it fetches {source.predownload} samples ahead.")
    if source.evicts:
        said.append("Raise cache_limit: shuffling asks for shards again that it has deleted.")
    return said


def _shards(source: SourceFacts, loader: LoaderFacts, wanted: int) -> str:
    """Advise how many shards to write where there are fewer than workers that would help, or than workers there are."""
    most = most_workers(loader)
    if most is None or max(wanted, loader.num_workers) <= most:
        return ""
    shards = "one shard" if most == 1 else f"{most} shards"
    idle = loader.num_workers - most
    now = f" ({idle} of the {loader.num_workers} now)" if idle > 0 else ""
    end = "stops the program" if source.kind == TARS and idle <= 0 else "stands idle"
    more = f"For {wanted} workers write {MORE_SHARDS[source.kind].format(wanted)}. " if wanted > most else ""
    return f"{more}With {shards} a worker more {end}{now}."


def rows_share(ledger: Ledger, loader: LoaderFacts) -> float:
    """Return the share of the sampled loading spent on making rows and tensors of numbers, decoding not counted."""
    lines, everything = loading_lines(ledger, loader)

    def rows(line: WorkerGroup | LineGroup) -> float:
        formatting, numbers, decoding = (below(line, [kind])[0] for kind in (*ROWS, DECODERS))
        return min(line.ns, max(0.0, formatting - decoding) + numbers)

    return sum(map(rows, lines)) / everything
