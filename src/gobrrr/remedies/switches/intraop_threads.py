"""As many threads per op as this process may really use cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.capture.steps import run_queue
from gobrrr.remedies.model import AddStatement, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class IntraopThreads(Remedy):
    """torch.set_num_threads(schedule.cores()), at the start and again before the first forward."""

    name = "intraop_threads"
    title = "gives every op as many threads as the process may use cores"
    safety = "tolerance"
    codes = ("BRR309",)
    by_hand = f"torch.set_num_threads({run_queue.cores()})  # the cores that the process may use here"
    edit = AddStatement(by_hand)

    def apply(self, seams: Seams) -> None:
        import torch

        cores = run_queue.cores()
        before = torch.get_num_threads()

        def again(module: Any) -> None:
            """The program may have set another number since."""
            if torch.get_num_threads() != cores:
                torch.set_num_threads(cores)

        torch.set_num_threads(cores)
        seams.undo(lambda: torch.set_num_threads(before))
        seams.at_model(again)
        seams.applied(self.name, f"{cores} threads, {before} before")
