"""BRR410 and BRR411: what the main process itself does in a wait for its loader, so that no worker can take it over."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.host.stacks import RECEIVING, SAMPLING
from gobrrr.ledger.loading import loader_model
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.data.loader_advice import EXPECTED_BY, Loading
from gobrrr.rules.data.wait_stages import HALF, Wait, cause, cpu_share, staged_lines, steady_wait, wait
from gobrrr.rules.model.cores import batches_per_step, crowded, made_at, making_ns, recovers, worker_groups
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Cause, Quantity, rule, whole
from gobrrr.rules.model.lines import Functions, below
from gobrrr.units import duration, share

SOME = 0.5
"""Share of the expected saving that surely comes back: a sampler may have to see the last draw, tensors may have to
stay apart."""
REBUILDING = (Functions(("torch.multiprocessing.reductions.rebuild_",)),)
"""Taking a tensor out of shared memory: its descriptor is asked of the worker, over a connection of its own."""
MEASURED = "what it took in the plain steps, and the loader model"


@rule("BRR410", "data", needs={"plain", "facts", "samples"})
def sampler_bound_loader(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """The loop waits while the main process draws the indices of the next batch: workers wait for them as well."""
    found = wait(ledger, machine) if cause(ledger, machine) == "BRR410" else None
    lines = staged_lines(ledger, SAMPLING)
    if found is None or not lines:
        return
    drawn_at_once = batches_per_step(ledger) * machine.dispatch.median
    expected = min(max(0.0, found.sampling_ns - drawn_at_once), _left(ledger, machine, found, found.sampling_ns))
    if not worth_telling(ledger, expected):
        return
    rare, workers = found.sampling_ns > found.ns, found.loader.num_workers
    yield Cause(
        saving=(SOME * expected, expected, found.sampling_ns + recovers(ledger, machine, found.sampling_ns)),
        message=f"the main process draws indices for {duration(found.sampling_ns)} "
        f"({share(found.sampling_ns / whole(ledger, rare))}) of {'the mean' if rare else 'every'} step, mostly at this "
        f"line{f'; its {workers} workers wait too' if workers else ''}",
        advice="Prepare once what does not change (sorted lengths, cumulative weights, indices of each class), and "
        "draw for a whole epoch at once. More workers cannot help.",
        where=lines[0].where,
        evidence=_evidence(found, "sampling", found.sampling_ns, cpu_share(lines)),
        confidence="measured",
        rare=rare,
    )


@rule("BRR411", "data", needs={"plain", "facts", "samples"})
def transfer_bound_loader(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """The loop waits while batches that are made go from a worker to the main process."""
    found = wait(ledger, machine) if cause(ledger, machine) == "BRR411" else None
    if found is None:
        return
    expected = _left(ledger, machine, found._replace(receiving_ns=0.0), found.ns)  # mended, it is as short as usual
    if not worth_telling(ledger, expected):
        return
    said, advice = _way(ledger, found)
    # Of crowded cores a part of it is left out of what is expected.
    most = max(found.ns, steady_wait(ledger, machine))
    spent = f"{duration(found.receiving_ns)} ({share(found.receiving_ns / ledger.wall)}) of every step"
    if found.receiving_ns < HALF * found.ns:
        spent = f"{duration(found.ns)} ({share(found.ns / ledger.wall)}) of every step waits for data: "
        spent += f"{duration(found.sending_ns or 0.0)} of workers' CPU time"
    evidence = _evidence(found, "receiving", found.receiving_ns, cpu_share(staged_lines(ledger, RECEIVING)))
    yield Cause(
        saving=(SOME * expected, expected, most + recovers(ledger, machine, most)),
        message=f"{spent} goes into {said}",
        advice=advice,
        where=_maker(ledger, found),
        evidence=evidence | ({"sending_cpu": time(found.sending_ns)} if found.sending_ns is not None else {}),
        confidence="measured",
    )


def _evidence(found: Wait, name: str, ns: float, on_cpu: float | None) -> dict[str, Quantity]:
    said = {"data_wait": time(found.ns), name: time(ns), "num_workers": count(found.loader.num_workers)}
    cpu = {f"{name}_cpu": time(on_cpu * ns)} if on_cpu is not None else {}
    return said | cpu | {EXPECTED_BY: Quantity(MEASURED, "")}


def _left(ledger: Ledger, machine: Machine, found: Wait, most: float) -> float:
    """Return the ns per step, at most `most`, that the loader model saves where workers make batches as they do now and
    nothing keeps them from it."""
    workers = found.loader.num_workers
    if not workers:
        return most
    made, cpu = making_ns(ledger, found.loader)
    blocked = 0.0 if crowded(ledger, machine) else made - cpu
    loading = Loading(ledger, machine, found._replace(ns=max(found.ns, found.sampling_ns)))
    pipeline = loading.pipeline._replace(blocked_ns=max(0.0, blocked), cpu_ns=cpu)
    return min(most, max(0.0, loading.now - loader_model.step(pipeline, workers, loading.cores.median)))


def _way(ledger: Ledger, found: Wait) -> tuple[str, str]:
    """Return (work that the hand-over spends its time on, advice)."""
    if found.receiving_ns < HALF * found.ns:
        return (
            "copying batches to shared memory",
            "Send fewer bytes: uint8 or half where that is what was read, made floating in the step. Let "
            "default_collate or torch.stack(out=) write into shared memory at once.",
        )
    lines = staged_lines(ledger, RECEIVING)
    if sum(below(line, REBUILDING)[0] for line in lines) >= HALF * sum(line.ns for line in lines):
        return (
            "taking the tensors of a batch over from its worker one by one",
            "Send few tensors: join those of a batch in the collate function (torch.cat, pad_sequence, one matrix) and "
            "split them in the step. Where they are few, send fewer bytes (uint8, made floating in the step).",
        )
    return (
        "reading a batch out of a pipe and unpickling it",
        "Return tensors from the collate function (torch.from_numpy(array)): they go through shared memory, arrays, "
        "lists and objects through a pipe. Send small ones (uint8, made floating in the step).",
    )


def _maker(ledger: Ledger, found: Wait) -> tuple[Span, ...]:
    """Return the place where batches are made as they are sent: the user's collate function, else the data set."""
    loader = found.loader
    lines = [g for g in worker_groups(ledger, loader) if g.kind == "collate" and g.where]
    span = loader.collate_span
    inside = [g for g in lines if span and g.where[-1].file == span.file]
    if inside:
        return max(inside, key=lambda group: group.ns).where
    return made_at(loader)
