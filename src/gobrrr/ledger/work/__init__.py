"""How much work does an op do: FLOPs and the least traffic, from what torch.profiler records?"""

from __future__ import annotations

from gobrrr.ledger.work.assign import assign, owners, work_of
from gobrrr.ledger.work.model import Work

# each module fills the table of formulas
from gobrrr.ledger.work.passes import (  # noqa: F401
    copying,
    elementwise,
    gather,
    norm,
    optimizers,
    pooling,
    random,
    reduction,
    softmax_loss,
    sorting,
    views,
)
from gobrrr.ledger.work.passes.optimizers import list_work
from gobrrr.ledger.work.products import attention, convolution, linalg, matmul, quantized, recurrent  # noqa: F401
from gobrrr.ledger.work.wrappers import is_wrapper

__all__ = ["Work", "assign", "is_wrapper", "list_work", "owners", "work_of"]
