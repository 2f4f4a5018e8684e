"""Sampled lines, host time and loaders made by hand, for the rules that judge what is not an op."""

from __future__ import annotations

from typing import Any

from gobrrr.ledger.model.ledger import Account, HostGroup, LineGroup, StepStats, WorkerGroup
from gobrrr.recording.model.facts import Facts, LoaderFacts, Span
from tests.support.handmade import LINE, MS, Case

LOOP = Span("train.py", 70, "main")
GETITEM = Span("data.py", 12, "Pictures.__getitem__")
COLLATE = Span("data.py", 30, "collate")


def line(ms: float, *where: Span, phase: str = "other", waiting: bool = False, **libraries: float) -> LineGroup:
    """`ms` sampled at a line; libraries as copy__deepcopy=3.0 (ms): two underscores are a dot."""
    below = tuple((name.replace("__", "."), spent * MS) for name, spent in libraries.items())
    return LineGroup(where or (LINE,), ms * MS, phase, tuple(n for n, _ in below), below, waiting)


def host(ms: float, *where: Span, phase: str = "other", **fields: Any) -> HostGroup:
    """`ms` between ops at a line, as profiled."""
    return HostGroup(where or (LINE,), ms * MS, phase, **fields)


def worker(ms: float, *where: Span, kind: str = "getitem", cpu: float | None = 1.0) -> WorkerGroup:
    """`ms` per batch in a loader's worker."""
    return WorkerGroup(0, kind, where or (GETITEM,), ms * MS, (), cpu)


def loader(**fields: Any) -> LoaderFacts:
    """A loader of 8 samples a batch in the main process, from a dataset of the user's."""
    given = {
        "batch_size": 8, "dataset": "Pictures", "dataset_span": Span("data.py", 10, "__getitem__"),
        "created_span": LOOP, "num_batches": 100, "collate": "default_collate", **fields,
    }  # fmt: skip
    return LoaderFacts(0, **given)


def waiting(
    ms: float, *parts: LineGroup, step: float = 100.0, waits: tuple[float, ...] = (),
    workers: tuple[WorkerGroup, ...] = (), facts: dict[str, Any] | None = None,
    accounts: tuple[Account, ...] = (), **fields: Any
) -> Case:  # fmt: skip
    """A step of `step` ms that waits `ms` for its loader; `parts` are the lines of the data phase."""
    share = ms / step
    return Case(
        ms=step,
        facts=Facts(loaders=(loader(**fields),), **(facts or {})),
        accounts=(Account("data_wait", ms * MS, share), Account("host", (step - ms) * MS, 1 - share), *accounts),
        step=StepStats(count=100, plain_count=50, waits=tuple(w * MS for w in waits)),
        extra={"lines": parts, "workers": workers},
    )


def lines(*parts: LineGroup, ms: float = 100.0, **fields: Any) -> Case:
    """A step of `ms` with sampled lines."""
    return Case(ms=ms, extra={"lines": parts}, **fields)
