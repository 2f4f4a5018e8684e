"""One loader worker, with a core of its own: it hides a wait that is shorter than the rest of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gobrrr.capture.steps import run_queue
from gobrrr.remedies.loader.fetch_safety import Fetched
from gobrrr.remedies.loader.loader_arguments import COUNTED_ELSEWHERE, of_the_model, with_workers
from gobrrr.remedies.loader.workers_kept import renew_workers
from gobrrr.remedies.model import Remedy
from gobrrr.rules.data.loader_advice import SAVED_BY_ONE
from gobrrr.rules.model.finding import Saving

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams
    from gobrrr.rules.verdict.report import Report


class OneWorker(Remedy):
    """num_workers = 1 for every DataLoader that has none, or more, and where ops have a thread on each core one thread
    less: an op on all cores waits for the one that the worker has (a small ViT on four cores: 10.8 s without workers,
    12.3 with one, 5.9 with one and three threads). Of one, an iterable dataset is read once, as without any; several
    that read it stay. It lives on from epoch to epoch while what it has a copy of stays as it is."""

    name = "one_worker"
    title = "loads data in one process beside the program's, on a core of its own"
    safety = "order"
    place = "loader"
    codes = ("BRR401", "BRR403", "BRR405", "BRR406")
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
    if threads < max(2, run_queue.cores()):
        return ""
    torch.set_num_threads(threads - 1)
    seams.undo(lambda: torch.set_num_threads(threads))
    return f", and {threads - 1} threads"
