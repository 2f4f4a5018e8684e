"""A cell of an LSTM without forget gate, several ways: u, o, g are thirds of [h x] W' + b; c becomes c + elu(g) s(u), h
becomes tanh(c) s(o), s the sigmoid."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gobrrr.errors import GobrrrError

Cell = Callable[..., tuple[Any, Any]]
"""(x, h, c, weight, bias) gives (h, c)."""
SOURCE = Path(__file__).with_name("lltm.cpp")


def by_ops(x: Any, h: Any, c: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
    """In ops of torch, called from Python."""
    import torch

    gates = torch.nn.functional.linear(torch.cat((h, x), 1), weight, bias)
    update, output, candidate = gates.chunk(3, 1)
    c = c + torch.nn.functional.elu(candidate) * update.sigmoid()
    return c.tanh() * output.sigmoid(), c


def by_cpp(folder: str) -> Cell:
    """The same ops called from C++, backward written out; built into `folder`, of some ten seconds. Raises GobrrrError
    where the compiler fails."""
    import torch
    from torch.utils.cpp_extension import load

    if "gobrrr_lltm" not in _BUILT:
        try:
            load("gobrrr_lltm", [str(SOURCE)], ["-O1"], build_directory=folder, is_python_module=False)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            raise GobrrrError(f"the C++ extension was not built: {str(error).splitlines()[0]}") from None
        _BUILT.add("gobrrr_lltm")
    return _differentiable(torch.ops.gobrrr_lltm.ahead, torch.ops.gobrrr_lltm.back)


def by_triton() -> Cell:
    """Products by torch, all between them in one kernel each way. Without a device Triton interprets its kernels, which
    says whether they are right and nothing of their time. Raises GobrrrError where Triton is not installed."""
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        from gobrrr_lab.nets import lltm_triton
    except ImportError:
        raise GobrrrError("Triton is not installed: unverified here") from None
    return _differentiable(lltm_triton.ahead, lltm_triton.back)


_BUILT: set[str] = set()


def _differentiable(ahead: Callable[..., Any], back: Callable[..., Any]) -> Cell:
    """`ahead(x, h, c, weight, bias)` gives h, c and what `back(dh, dc, *kept, weight)` needs; that gives the
    gradients of [h x], c, weight, bias."""
    import torch

    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, h: Any, c: Any, weight: Any, bias: Any) -> Any:
            h_new, c_new, *kept = ahead(x, h, c, weight, bias)
            ctx.save_for_backward(*kept, weight)
            ctx.state = h.shape[1]
            return h_new, c_new

        @staticmethod
        def backward(ctx: Any, dh: Any, dc: Any) -> Any:
            both, older, weight, bias = back(dh, dc, *ctx.saved_tensors)
            return both[:, ctx.state :], both[:, : ctx.state], older, weight, bias

    return Both.apply
