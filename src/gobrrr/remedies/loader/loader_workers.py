"""As many loader workers as the loader model advises, or as there are cores."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from gobrrr.capture.steps import run_queue
from gobrrr.remedies.loader.fetch_safety import Fetched
from gobrrr.remedies.loader.loader_arguments import COUNTED_ELSEWHERE, SHARE, most_said, of_the_model, with_workers
from gobrrr.remedies.loader.workers_kept import SHARED, renew_workers
from gobrrr.remedies.model import Edit, Remedy, SetKeyword
from gobrrr.rules.data.loader_advice import HELD_BYTES, SAVED_BY_WORKERS, WORKERS
from gobrrr.rules.model.finding import Saving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gobrrr.remedies.mechanism.seams import Seams
    from gobrrr.rules.verdict.report import Report


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
    codes = ("BRR401", "BRR402", "BRR403", "BRR405", "BRR407")
    conflicts = ("one_worker",)
    unseen = COUNTED_ELSEWHERE
    by_hand = (
        "DataLoader(..., num_workers=os.cpu_count(), persistent_workers=True)  # persistent unless the data set changes"
    )
    edit = SetKeyword(("DataLoader",), "num_workers", str(run_queue.cores()), positional=5, raises=True,
                      no_streams=True, of=("torch", "torch_geometric"))  # fmt: skip
    takes: ClassVar[dict[str, tuple[int, int]]] = {"workers": (0, 1024), "prefetch": (1, 64)}

    def predicts(self, report: Report) -> Saving:
        """Return the saving that the model states for the workers that it advises."""
        return of_the_model(super().predicts(report), report, self.codes, SAVED_BY_WORKERS)

    def is_pointless(self, report: Report) -> bool:
        """Where one worker is as good as any, or all that there is room for, one_worker is what sets it."""
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
        wanted = advised if advised is not None else run_queue.cores()
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
