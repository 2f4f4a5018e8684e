"""How much work does an op do: FLOPs and the least traffic, from what torch.profiler records?"""

from __future__ import annotations

# each module fills the table of formulas
from gobrrr.ledger.work import attention, copying, gather, linalg, matmul, norms, passes, reduction, windows  # noqa: F401
from gobrrr.ledger.work.assign import Assigned, assign, is_wrapper, work_of
from gobrrr.ledger.work.call import Work

__all__ = ["Assigned", "Work", "assign", "is_wrapper", "work_of"]
