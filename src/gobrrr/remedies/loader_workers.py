"""As many loader workers as there are cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.capture import schedule
from gobrrr.remedies.copied_state import Renewed, renew_workers
from gobrrr.remedies.model import Remedy, SetKeyword

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class LoaderWorkers(Remedy):
    """num_workers = cores for every DataLoader that has fewer. Random draws inside __getitem__ come from the workers'
    own streams then; an iterable dataset would be read by each worker whole, and is left alone. Workers stay from
    epoch to epoch while what they have a copy of stays as it is."""

    name = "loader_workers"
    title = "loads data in as many processes as there are cores"
    safety = "order"
    place = "loader"
    codes = ("BRR401", "BRR402", "BRR403", "BRR405", "BRR407")
    conflicts = ("one_worker",)
    by_hand = (
        "DataLoader(..., num_workers=os.cpu_count(), persistent_workers=True)  # persistent unless the data set changes"
    )
    edit = SetKeyword(("DataLoader",), "num_workers", "os.cpu_count()")

    def apply(self, seams: Seams) -> None:
        from torch.utils.data import IterableDataset

        cores = schedule.cores()

        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            before = kwargs.get("num_workers") or 0
            if before >= cores or isinstance(kwargs.get("dataset"), IterableDataset):
                few = f"the loader has {before} workers, on {cores} cores"
                seams.declined(self.name, few if before >= cores else "each worker would read the whole of a stream")
                return kwargs
            seams.applied(self.name, f"{cores} workers, {before} before")
            stay = kwargs.get("persistent_workers") or Renewed(True)
            return {**kwargs, "num_workers": cores, "persistent_workers": stay}

        renew_workers(seams)
        seams.at_loader(change)


REMEDY = LoaderWorkers()
