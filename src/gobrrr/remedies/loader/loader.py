"""Remedies of a DataLoader: workers, how long they live, page-locked memory, how a batch is fetched."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from gobrrr.capture.steps import vitals
from gobrrr.remedies.edits.forms import Edit, SetKeyword
from gobrrr.remedies.loader.fetch_safety import Fetched, without_workers
from gobrrr.remedies.loader.workers_kept import SHARED, Renewed, renew_workers
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.data.loader_advice import HELD_BYTES, SAVED_BY_ONE, SAVED_BY_WORKERS, WORKERS
from gobrrr.rules.model.finding import Saving
from gobrrr.rules.verdict.report import Report

SHARE = 0.25
"""Share of the free memory that kept or waiting samples may take (proposed: the program grows as well)."""
COUNTED_ELSEWHERE = "what a data set counts or collects in objects of its own stays in the workers, unread"
"""Where it is seen to write, it is left alone; a method of another object may hide it."""


def most_said(report: Report, codes: Collection[str], name: str) -> float | None:
    """The largest figure of that name in the evidence of findings with these codes; None where none has it."""
    said = [f.evidence[name].value for f in report.findings if f.code in codes and name in f.evidence]
    return max((float(value) for value in said if not isinstance(value, str)), default=None)


def of_the_model(saving: Saving, report: Report, codes: Collection[str], name: str) -> Saving:
    """`saving`, with what the loader model expects, where it was asked (of a trace it is not)."""
    said = most_said(report, codes, name)
    if said is None:
        return saving
    expected = min(said, saving.ceiling_ns)
    return Saving(min(saving.low_ns, expected), expected, saving.ceiling_ns)


def with_workers(kwargs: dict[str, Any], workers: int, prefetch: int | None = None) -> dict[str, Any]:
    """A DataLoader's arguments with so many workers, which stay from epoch to epoch, and so many batches ahead of each;
    None as the program has it."""
    if not workers:
        return without_workers(kwargs)
    renewed = Renewed(True)
    renewed.alone = not kwargs.get("num_workers")
    stay = kwargs.get("persistent_workers") or renewed
    ahead = {} if prefetch is None else {"prefetch_factor": prefetch}
    return {**kwargs, **ahead, "num_workers": workers, "persistent_workers": stay}


class LoaderWorkers(Remedy):
    """num_workers as the loader model advises by the report, within a share of the memory that is free, else as many as
    cores; for every DataLoader that has fewer. Random draws inside __getitem__ come from the workers'
    own streams then; an iterable dataset would be read by each worker whole, and is left alone. Workers stay from
    epoch to epoch while what they have a copy of stays as it is.

    With `prefetch` it is what `gobrrr tune` found best among several settings (trial/race/loader_settings.py): then
    every loader has just as many workers, none too, and each worker holds so many batches ready."""

    name = "loader_workers"
    title = "loads data in other processes, as many as the loader model advises, or as there are cores"
    safety = "order"
    place = "loader"
    conflicts = ("one_worker",)
    unseen = COUNTED_ELSEWHERE
    by_hand = (
        "DataLoader(..., num_workers=os.cpu_count(), persistent_workers=True)  # persistent unless the data set changes"
    )
    edit = SetKeyword(("DataLoader",), "num_workers", str(vitals.cores()), positional=5, raises=True,
                      no_streams=True, of=("torch", "torch_geometric", "monai"))  # fmt: skip
    takes: ClassVar[dict[str, tuple[int, int]]] = {"workers": (0, 1024), "prefetch": (1, 64)}

    def predicts(self, report: Report) -> Saving:
        """Return the saving that the model states for the workers that it advises."""
        return of_the_model(super().predicts(report), report, self.codes, SAVED_BY_WORKERS)

    def is_pointless(self, report: Report) -> bool:
        """Return True where one worker is as good as any, or all that there is room for, one_worker is what sets it."""
        return super().is_pointless(report) or self.options(report) == {"workers": 1}

    def options(self, report: Report) -> dict[str, int]:
        """The workers that the model advises, as far as memory goes; nothing where it advises none."""
        advised = int(most_said(report, self.codes, WORKERS) or 0)
        held = most_said(report, self.codes, HELD_BYTES) or 0.0
        most = self.takes["workers"][1]
        fitting = int(room() // held) if held > 0 else most
        return {"workers": max(1, min(advised, fitting, most))} if advised else {}

    def change_of_source(self, options: Mapping[str, int]) -> Edit | None:
        """Without workers other arguments must go as well, and more batches ahead be added: by hand."""
        if options.get("workers") == 0:
            return None
        if "workers" not in options:
            return self.edit
        return replace(self.edit, value=str(options["workers"]), raises="prefetch" not in options)

    def apply(self, seams: Seams) -> None:
        from torch.utils.data import IterableDataset

        advised, prefetch = self.option("workers"), self.option("prefetch")
        searched = advised is not None and prefetch is not None
        wanted = advised if advised is not None else vitals.own_cores()
        fetched = Fetched(seams.aside)
        by = "as the model advises" if advised is not None else f"on {wanted} cores"

        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            before = kwargs.get("num_workers") or 0
            if not searched and before >= wanted:
                seams.declined(self.name, f"the loader has {before} workers, {wanted} are wanted, {by}")
                return kwargs
            if before != wanted and max(before, wanted) > 1 and isinstance(kwargs.get("dataset"), IterableDataset):
                seams.declined(self.name, "each worker would read the whole of a stream")
                return kwargs
            if before != wanted and (why_not := fetched.why_not(kwargs)):
                seams.declined(self.name, why_not)
                return kwargs
            seams.applied(self.name, f"{wanted} workers, {before} before")
            return with_workers(kwargs, wanted, prefetch if searched else None)

        renew_workers(seams)
        seams.at_loader(change)


def room() -> float:
    """Bytes that workers and their batches may hold: a share of what is free, in shared memory too."""
    import psutil

    free = psutil.virtual_memory().available
    if SHARED.is_dir():
        free = min(free, shutil.disk_usage(SHARED).free)
    return SHARE * float(free)


class OneWorker(Remedy):
    """num_workers = 1 for every DataLoader that has none, or more, and where ops have a thread on each core one thread
    less: an op on all cores waits for the one that the worker has (a small ViT on four cores: 10.8 s without workers,
    12.3 with one, 5.9 with one and three threads). Of one, an iterable dataset is read once, as without any; several
    that read it stay. It lives on from epoch to epoch while what it has a copy of stays as it is."""

    name = "one_worker"
    title = "loads data in one process beside the program's, on a core of its own"
    safety = "order"
    place = "loader"
    conflicts = ("loader_workers", "intraop_threads")
    takes: ClassVar[dict[str, tuple[int, int]]] = {"prefetch": (1, 64)}
    unseen = COUNTED_ELSEWHERE
    by_hand = (
        "torch.set_num_threads(max(1, torch.get_num_threads() - 1))\n"
        "DataLoader(..., num_workers=1, persistent_workers=True)  # persistent unless the data set changes"
    )

    def predicts(self, report: Report) -> Saving:
        """Return the saving that the loader model states for one worker; where there are workers already it helps only
        where they are too many."""
        found = super().predicts(report)
        called_for = [f for f in report.findings if f.code in self.codes]
        if any(f.code == "BRR406" for f in called_for):
            return found
        if any(float(f.evidence["num_workers"].value) > 0 for f in called_for if "num_workers" in f.evidence):
            return Saving()
        return of_the_model(found, report, self.codes, SAVED_BY_ONE)

    def apply(self, seams: Seams) -> None:
        from torch.utils.data import IterableDataset

        prefetch, fetched = self.option("prefetch"), Fetched(seams.aside)

        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            before = kwargs.get("num_workers") or 0
            if before == 1 and prefetch is None:
                return kwargs
            if before > 1 and isinstance(kwargs.get("dataset"), IterableDataset):
                seams.declined(self.name, f"{before} workers share a stream, or each reads all of it")
                return kwargs
            if before != 1 and (why_not := fetched.why_not(kwargs)):
                seams.declined(self.name, why_not)
                return kwargs
            seams.applied(self.name, f"1 worker, {before} before{_leave_a_core(seams)}")
            return with_workers(kwargs, 1, prefetch)

        renew_workers(seams)
        seams.at_loader(change)


def _leave_a_core(seams: Seams) -> str:
    """Take one thread away where there is one on each core; return the words that say so."""
    import torch

    threads = torch.get_num_threads()
    if threads < max(2, vitals.own_cores()):
        return ""
    torch.set_num_threads(threads - 1)
    seams.undo(lambda: torch.set_num_threads(threads))
    return f", and {threads - 1} threads"


class PersistentWorkers(Remedy):
    """persistent_workers=True for every DataLoader with workers. Workers that live on keep their random streams, so
    draws inside __getitem__ differ from the second epoch on; and their copy of the data set: where the program has
    changed its own since (a curriculum) they are made anew, and where fetching itself changes it the loader stays as it
    is. No edit of source: two words there would not look."""

    name = "persistent_workers"
    title = "keeps loader workers alive between epochs"
    safety = "order"
    place = "loader"
    by_hand = "DataLoader(..., persistent_workers=True)  # if nothing changes the data set between epochs"

    def apply(self, seams: Seams) -> None:
        fetched = Fetched(seams.aside)

        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            if not kwargs.get("num_workers") or kwargs.get("persistent_workers"):
                return kwargs
            if why_not := fetched.changes(kwargs):
                seams.declined(self.name, why_not)
                return kwargs
            seams.applied(self.name)
            return {**kwargs, "persistent_workers": Renewed(True)}

        renew_workers(seams)
        seams.at_loader(change)


class PinMemory(Remedy):
    """pin_memory=True for every DataLoader; needs a CUDA device."""

    name = "pin_memory"
    title = "hands batches over in page-locked memory"
    place = "loader"
    by_hand = "DataLoader(..., pin_memory=True); x = x.to(device, non_blocking=True)"
    edit = SetKeyword(("DataLoader",), "pin_memory", "True", positional=7)

    def probe(self) -> str:
        import torch

        return "" if torch.cuda.is_available() else "there is no CUDA device to copy to"

    def apply(self, seams: Seams) -> None:
        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            if kwargs.get("pin_memory"):
                return kwargs
            seams.applied(self.name)
            return {**kwargs, "pin_memory": True}

        seams.at_loader(change)


class BatchedFetch(Remedy):
    """For DataLoaders with torch's own collate function whose data set only indexes tensors or arrays: TensorDataset,
    skorch's, or a class of which __getitem__ is nothing else (`return self.x[i], self.y[i]`); in a Subset too. The
    first batch of each loader is made both ways: where they are not equal bit for bit the loader stays as it is. Each
    batch asks anew what the data set is: a program may give it other columns, or another class."""

    name = "batched_fetch"
    title = "takes all rows of a batch from memory at once"
    place = "loader"
    by_hand = (
        "DataLoader(data, sampler=BatchSampler(RandomSampler(data), batch_size, drop_last=False), batch_size=None)"
    )

    def probe(self) -> str:
        from torch.utils.data._utils import fetch

        return "" if hasattr(fetch, "_MapDatasetFetcher") else "loaders of this torch fetch otherwise"

    def apply(self, seams: Seams) -> None:
        from gobrrr.remedies.loader.whole_batches import fetch_whole

        fetch_whole(self.name, seams)
