"""Gives TraceML the step boundaries that it asks its users to write into their program, so that it can be compared.

    traceml run benchmarks/traceml_steps.py --args training|inference script.py [args]

A step opens at the first forward after the last one closed, and closes at the optimizer's update (or, for inference, at
the end of the forward). The program itself stays as it is.
"""

from __future__ import annotations

import functools
import runpy
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
import traceml_ai as traceml
from torch.optim.optimizer import register_optimizer_step_post_hook

open_step: list[AbstractContextManager[None]] = []


def close(*_: object) -> None:
    """End the step that is open."""
    if open_step:
        open_step.pop().__exit__(None, None, None)


def main() -> None:
    """Initialise TraceML, mark the steps, run the script."""
    kind, script = sys.argv[1], sys.argv[2]
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(script).resolve().parent)
    traceml.init(mode="auto")
    call = torch.nn.Module.__call__
    depth = 0

    @functools.wraps(call)
    def bounded(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        if depth == 0 and not open_step:
            open_step.append(traceml.trace_step(module))
            open_step[-1].__enter__()
        depth += 1
        try:
            return call(module, *args, **kwargs)
        finally:
            depth -= 1
            if depth == 0 and kind == "inference":
                close()

    torch.nn.Module.__call__ = bounded  # type: ignore[method-assign]
    if kind == "training":
        register_optimizer_step_post_hook(close)
    runpy.run_path(script, run_name="__main__")
    close()


if __name__ == "__main__":
    main()
