"""One loader worker: it hides a wait that is shorter than the rest of the step, and leaves it the other cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy, SetKeyword
from gobrrr.rules.model import Saving

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams
    from gobrrr.report.model import Report


class OneWorker(Remedy):
    """num_workers = 1 for every DataLoader that has none, or more: on a few cores workers take the step's own. Of one,
    an iterable dataset is read once, as without any."""

    name = "one_worker"
    title = "loads data in one process beside the program's"
    safety = "order"
    place = "loader"
    codes = ("BRR401", "BRR403", "BRR405", "BRR406")
    conflicts = ("loader_workers",)
    by_hand = "DataLoader(..., num_workers=1, persistent_workers=True)"
    edit = SetKeyword(("DataLoader",), "num_workers", "1")

    def predicts(self, report: Report) -> Saving:
        """Beside the step a worker hides as much of the wait as the rest of it takes."""
        found = super().predicts(report)
        wait = next((account.ns for account in report.ledger if account.account == "data_wait"), 0)
        rest = max(0.0, report.step.plain_wall_ns - wait)
        return Saving(min(found.low_ns, rest), min(found.expected_ns, rest), found.ceiling_ns)

    def apply(self, seams: Seams) -> None:
        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            before = kwargs.get("num_workers") or 0
            if before == 1:
                return kwargs
            seams.applied(self.name, f"1 worker, {before} before")
            return {**kwargs, "num_workers": 1, **({} if before else {"persistent_workers": True})}

        seams.at_loader(change)


REMEDY = OneWorker()
