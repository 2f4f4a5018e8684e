"""How much work an op does: FLOPs and the least traffic, from what torch.profiler records of its call."""

from __future__ import annotations

from gobrrr.ledger.work import (  # noqa: F401  (each fills the table of formulas)
    attention,
    convolution,
    copying,
    elementwise,
    gather,
    linalg,
    matmul,
    norm,
    optimizers,
    pooling,
    quantized,
    random,
    recurrent,
    reduction,
    softmax_loss,
    sorting,
    views,
)
from gobrrr.ledger.work.assign import assign, owners, work_of
from gobrrr.ledger.work.model import Work
from gobrrr.ledger.work.optimizers import list_work
from gobrrr.ledger.work.wrappers import is_wrapper

__all__ = ["Work", "assign", "is_wrapper", "list_work", "owners", "work_of"]
