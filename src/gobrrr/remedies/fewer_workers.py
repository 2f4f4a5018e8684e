"""No more loader workers than cores that the step leaves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy, SetKeyword

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class FewerWorkers(Remedy):
    """num_workers = 1 for every DataLoader that has more: on a few cores workers take the step's own."""

    name = "fewer_workers"
    title = "loads data in one process beside the program's"
    safety = "order"
    place = "loader"
    codes = ("BRR406",)
    conflicts = ("loader_workers",)
    by_hand = "DataLoader(..., num_workers=1)"
    edit = SetKeyword(("DataLoader",), "num_workers", "1", only_if="num_workers")

    def apply(self, seams: Seams) -> None:
        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            before = kwargs.get("num_workers") or 0
            if before < 2:
                return kwargs
            seams.applied(self.name, f"1 worker, {before} before")
            return {**kwargs, "num_workers": 1}

        seams.at_loader(change)


REMEDY = FewerWorkers()
