"""Which settings of the library that a data set comes from matter here.

What is advised was faster here, and what was not is not: docs/decisions/0028, "Shards and rows".
"""

from __future__ import annotations

from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Ledger, LineGroup, WorkerGroup
from gobrrr.recording.model.facts import LoaderFacts, SourceFacts
from gobrrr.rules.data.pictures import loading_lines
from gobrrr.rules.model.evidence import count, ratio
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.model.lines import Functions, below

STREAM, TABLE, TARS, STREAMING = "datasets stream", "datasets", "webdataset", "streaming"
"""Kinds of capture.dataformats."""
ROWS = (
    Functions(("datasets.formatting.",)),
    Functions(("torch.utils.data._utils.collate.",), frozenset({"collate_float_fn", "collate_int_fn"})),
)
"""Making rows of Arrow's columns; numbers of Python that become tensors again."""
DECODING = Functions(("datasets.features.image.", "datasets.features.audio.", "datasets.features.video.", "PIL."))
"""Decoding below the first of `ROWS`, whatever the format: it is not making rows."""
FETCHING = ("BRR402", "BRR405")
"""Findings that fetching more at once, or further ahead, mends."""
LEAST = 0.3
"""Share of the loading from which rows are worth another format (proposed)."""
AHEAD = 8
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


def with_formats(found: Finding, ledger: Ledger, loader: LoaderFacts, wanted: int = 0) -> Finding:
    """The finding, with what to set at the library that the samples come from; `wanted`: workers that would help."""
    source, told = loader.source, shared_out(loader) if found.code in FETCHING else ""
    if source is None:
        return replace(found, advice=f"{found.advice} {told}") if told else found
    part = rows_share(ledger, loader)
    rows = _rows(found, source, loader, part)
    mended = found.code == "BRR403" and rows and loader.collate_span is None  # torch's own collate: none to write
    shards, advice = _shards(source, loader, wanted), "" if mended else found.advice
    most = most_workers(loader)
    lacking = most is not None and wanted > most  # more workers bring nothing before there are more shards
    order = (shards, advice) if lacking else (advice, shards)
    said = (rows, *order, *_settings(found, source, loader), told)
    told_of = {"rows_share": ratio(part)} if rows and part >= LEAST else {}
    told_of |= {"shards": count(source.shards)} if source.shards else {}
    return replace(found, advice=" ".join(filter(None, said)), evidence=found.evidence | told_of)


def _rows(found: Finding, source: SourceFacts, loader: LoaderFacts, part: float) -> str:
    """Arrays, and those of a batch at once: short rows that are formatted one by one cost more than lists do."""
    collated = found.code == "BRR403" and source.kind == TABLE and source.numbers
    if found.code not in ("BRR401", "BRR403") or (part < LEAST and not collated):
        return ""
    numpy = "" if source.format else '.with_format("numpy")'
    if source.kind == STREAM and loader.batch_size:
        batches = f"dataset{numpy}.batch({loader.batch_size}) and DataLoader(..., batch_size=None)"
        return f"Take rows as arrays, a batch at once: {batches}."
    if source.kind == TABLE and source.wrapped and loader.one_by_one:
        return f"Take the rows of a batch at once: a __getitems__(indices) that reads dataset{numpy}[indices]."
    return f"Take rows as arrays, no lists of Python numbers: dataset{numpy}." if source.kind == TABLE and numpy else ""


def _settings(found: Finding, source: SourceFacts, loader: LoaderFacts) -> list[str]:
    """Return advice on settings of the library that hold it up."""
    said: list[str] = []
    if found.code not in FETCHING and source.kind != TARS:
        return said
    if source.kind == TARS and loader.num_workers and not loader.batch_size and not source.batched:
        said.append("Batch inside the pipeline (.batched(n)): workers hand over one sample after the other.")
    ahead = AHEAD * (loader.batch_size or 0)
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
    lines = loading_lines(ledger, loader)
    everything = sum(line.ns for line in lines)
    if everything <= 0:
        return 0.0

    def rows(line: WorkerGroup | LineGroup) -> float:
        formatting, numbers, decoding = (below(line, [kind])[0] for kind in (*ROWS, DECODING))
        return min(line.ns, max(0.0, formatting - decoding) + numbers)

    return sum(map(rows, lines)) / everything
