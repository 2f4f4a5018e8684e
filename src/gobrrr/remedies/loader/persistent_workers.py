"""Loader workers live on from one epoch to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.loader.fetch_safety import Fetched
from gobrrr.remedies.loader.workers_kept import Renewed, renew_workers
from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class PersistentWorkers(Remedy):
    """persistent_workers=True for every DataLoader with workers. Workers that live on keep their random streams, so
    draws inside __getitem__ differ from the second epoch on; and their copy of the data set: where the program has
    changed its own since (a curriculum) they are made anew, and where fetching itself changes it the loader stays as it
    is. No edit of source: two words there would not look."""

    name = "persistent_workers"
    title = "keeps loader workers alive between epochs"
    safety = "order"
    place = "loader"
    codes = ("BRR404",)
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
