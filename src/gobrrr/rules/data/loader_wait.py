"""BRR401, 402, 403, 407 and 408: why the loop waits for its batch.

One usual wait has one cause: `waits.cause` names it, and the other codes of the same nanoseconds keep still. What rare
slow samples (BRR407) and starting workers (BRR404) cost comes on top of the usual wait and is told beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.model.ledger import Ledger, SampleTime
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.data.library_calls import with_formats, with_libraries, with_pictures, with_transforms
from gobrrr.rules.data.loader_advice import (
    EXPECTED_BY,
    Loading,
    batch_bytes,
    keeping,
    prefetched,
)
from gobrrr.rules.data.pixels import pixels, with_pixels
from gobrrr.rules.data.wait_stages import SLOW as SEVERAL
from gobrrr.rules.data.wait_stages import (
    WAIT,
    Wait,
    cause,
    epoch_starts,
    fetches,
    rare_waits,
    rest_varies,
    start_cost,
    tail,
    wait,
)
from gobrrr.rules.model.cores import batches_per_step, first_span
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Cause, Quantity, fitting, rule
from gobrrr.rules.model.lines import loader_made
from gobrrr.units import duration, share

CHEAPER, LITTLE = 0.7, 0.25
"""Share of the samples' computing that a person's cheaper way is expected to save, and saves at least (a faster decoder
is 1.3 to 1.5 times as fast)."""
COLLATED, FEW_COLLATED = 0.8, 0.3
"""The same shares for collating, which copies a batch once where it is written well: the time of that copy is measured
here, so the first share is for batches whose size nobody saw."""
SLOW, FEW_SLOW = 0.8, 0.3
"""Share of the cost of slow samples that must be worth telling (the rest may be chance), and share that comes back at
least where only some of them can be mended."""

NAMED = 3
"""Slow samples whose index is told."""
AT_ONCE, HALF_AT_ONCE = 0.9, 0.5
"""Share of the computing of fetching rows one by one that fetching them at once saves (29 ms of 2,048 samples became
0.09), and saves at least where rows are wide and copying them is most of it."""


BY_KEEPING = "what taking kept samples from memory takes here"
GUESSED = "a guess of how much cheaper samples can be"
"""Basis of the saving of a person's cheaper way, whose time no recording shows: the saving of workers instead is
BRR405's."""


def _by(what: str) -> dict[str, Quantity]:
    return {EXPECTED_BY: Quantity(what, "")}


def _is(ledger: Ledger, machine: Machine, code: str) -> Wait | None:
    return wait(ledger, machine) if cause(ledger, machine) == code else None


@rule(
    "BRR401",
    "data",
    needs={"plain", "facts"},
    remedies=("one_worker", "loader_workers", "computed_once", "decoded_once", "draft_decoding"),
)
def transform_bound_loader(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """The loop waits while samples are computed: the processor is busy in __getitem__."""
    found = _is(ledger, machine, "BRR401")
    if found is None:
        return
    loading = Loading(ledger, machine, found)
    kept, seen = keeping(ledger, machine, loading, found), pixels(ledger, machine, found, loading)
    low, expected = seen.saving(loading.lacks(LITTLE), loading.lacks(CHEAPER))
    by = seen.by or GUESSED
    if kept.comes_again and kept.saved_ns >= expected:
        low, expected, by = min(low, kept.saved_ns), kept.saved_ns, BY_KEEPING
    if not worth_telling(ledger, expected):
        return
    advice = kept.advice(
        "Compute it once and keep it, do it on the whole batch, or use a cheaper way; workers help only where cores "
        "are idle."
    )
    said, more = ": computing samples", kept.evidence | _by(by)
    told_of = loading.cause(low, expected, said, advice=advice, more=more, vain=kept.vain)
    told_of = with_libraries(told_of, ledger, found.loader, "advice" if kept.vain else "after")
    told_of = with_transforms(with_pictures(told_of, ledger, found.loader, found.ns), ledger, found.loader)
    told_of = with_formats("BRR401", told_of, ledger, found.loader, loading.wanted)
    yield with_pixels(told_of, ledger, seen)


@rule("BRR402", "data", needs={"plain", "facts"}, remedies=("loader_workers",))
def read_bound_loader(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """The loop waits while its workers wait for what they read: nobody computes. Without workers it is BRR405."""
    found = _is(ledger, machine, "BRR402")
    if found is None:
        return
    loading = Loading(ledger, machine, found)
    more = loading.wanted
    gain = loading.gain(more)
    if not worth_telling(ledger, gain.expected):
        return
    told_of = loading.cause(
        *gain,
        f": samples are read, {share(found.idle_share or 0.0)} of it with the processor idle",
        advice=f"Read ahead with {more} workers or threads, keep what was read, or pack small files into large ones.",
    )
    yield with_formats("BRR402", told_of, ledger, found.loader, more)


@rule("BRR403", "data", needs={"plain", "facts"}, remedies=("one_worker", "loader_workers"))
def collate_bound_loader(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Most of the wait is putting samples together."""
    found = _is(ledger, machine, "BRR403")
    if found is None:
        return
    part, loading = found.collate_share or 0.0, Loading(ledger, machine, found)
    saved, by = _collated_once(ledger, machine, found, loading.pipeline.cpu_ns)
    expected = loading.lacks(saved)
    if not worth_telling(ledger, expected):
        return
    told_of = loading.cause(
        loading.lacks(FEW_COLLATED * part),
        expected,
        f": {share(part)} of it collates ({found.loader.collate or 'collate'})",
        advice="Fill one tensor made in advance, convert whole arrays at once (torch.from_numpy); no loop per element.",
        more={"collate": time(part * found.ns)} | _by(by),
    )
    told_of = with_formats("BRR403", with_libraries(told_of, ledger, found.loader), ledger, found.loader)
    yield with_pixels(told_of, ledger, pixels(ledger, machine, found, loading))


def _collated_once(ledger: Ledger, machine: Machine, found: Wait, computed: float) -> tuple[float, str]:
    """Return the share of the loading's computing (ns per step) that a collate function saves which copies each sample
    once, and the basis of that: a dispatch for each, and the bytes of the model's inputs, read and written at the
    machine's ceiling."""
    share, samples = found.collate_share or 0.0, found.loader.batch_size
    size = 2.0 * batch_bytes(ledger)
    if not size or not samples or computed <= 0:
        return COLLATED * share, GUESSED
    once = batches_per_step(ledger) * (samples * machine.dispatch.median + size * 1e9 / machine.byte_rate(size, 1))
    return max(0.0, share - once / computed), "what copying each sample once takes here"


@rule("BRR407", "data", needs={"plain"}, remedies=("loader_workers",))
def slow_samples(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A few waits are many times the usual one."""
    cost, limit = tail(ledger, machine)
    start = start_cost(ledger)
    why = cause(ledger, machine)
    if why == "BRR408" or (why == "BRR410" and epoch_starts(ledger) > 0.5 * cost):
        return  # collections that so many samples set off, or what epochs begin with: with them goes their tail
    if start > 0.5 * cost or cost <= 2 * rest_varies(ledger) or not worth_telling(ledger, SLOW * cost):
        return  # late first batches of epochs (BRR404), or a machine on which everything is late now and then
    waits = sorted(fetches(ledger))
    rare = rare_waits(ledger, machine)
    usual = waits[len(waits) // 2]
    found = wait(ledger, machine)
    loader = ledger.facts.main_loader
    place = found.where if found else _dataset_line(ledger)
    named = slow_indices(ledger, found)
    yield Cause(
        saving=(FEW_SLOW * cost, cost, limit),
        message=fitting(
            f"{len(rare)} of {len(waits)} batches take up to {duration(waits[-1])} where the usual one takes "
            f"{duration(usual)}: {duration(cost)} per step",
            *(f"; index {each.index} took {duration(each.ns)}" for each in named[:1]),
        ),
        advice="See what those samples have in common (size, file, retry) and mend, cache or drop them.",
        where=place,
        evidence={
            "slow_batches": count(len(rare)),
            "usual_wait": time(usual),
            "p95_wait": time(waits[int(0.95 * (len(waits) - 1))]),
            "longest_wait": time(waits[-1]),
        }
        | {f"sample {each.index}": time(each.ns) for each in named}
        | {f"sample {each.index} cpu": time(each.cpu_ns) for each in named if each.cpu_ns is not None}
        | _by("the usual wait of the plain phase")
        | (prefetched(ledger, machine, loader, rare, usual) if loader and "offline" not in ledger.signals else {}),
        confidence="measured",
        rare=True,
    )


def slow_indices(ledger: Ledger, found: Wait | None) -> tuple[SampleTime, ...]:
    """Return the samples seen being made that take several times the mean one, and more than a share of the step."""
    usual = found.item_ns if found and found.item_ns is not None else 0.0
    least = max(SEVERAL * usual, WAIT * ledger.wall)
    return tuple(each for each in ledger.slow_samples if each.ns > least)[:NAMED]


def _dataset_line(ledger: Ledger) -> tuple[Span, ...]:
    lines = [line for line in ledger.lines if line.phase == "data" and line.where and not line.stage]
    if lines:
        return max(lines, key=lambda line: line.ns).where
    loader = ledger.facts.main_loader
    return first_span(loader.dataset_span, loader.created_span) if loader else ()


@rule("BRR408", "data", needs={"plain", "facts"}, remedies=("batched_fetch", "computed_once"))
def item_by_item_fetch(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Tensors in memory that are taken apart into samples and stacked into a batch again."""
    found = _is(ledger, machine, "BRR408")
    if found is None:
        return
    loader, loading = found.loader, Loading(ledger, machine, found)
    expected, kept = loading.lacks(AT_ONCE), keeping(ledger, machine, loading, found)
    if not worth_telling(ledger, expected):
        return
    yield loading.cause(
        loading.lacks(HALF_AT_ONCE),
        expected,
        f": {loader.batch_size} samples in memory are fetched one by one ({duration(found.item_ns or 0.0)} each)",
        advice="Give the data set a __getitems__ that makes a batch from its indices at once; where it only indexes "
        "tensors, batch_size=None and a BatchSampler do." + kept.also,
        where=first_span(loader.dataset_span) or loader_made(ledger, loader),
        more=kept.evidence,
        vain=kept.vain,
    )
