"""Processes that talk over gloo, on this machine."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from gobrrr.errors import GobrrrError


def meet(work: Callable[..., Any], ranks: int, *args: Any, wait_s: float = 100.0) -> Any:
    """Return the result of rank 0's `work(rank, *args)`; each rank is a process with one thread of torch's. Raise
    GobrrrError where they do not end within `wait_s` seconds."""
    context = multiprocessing.get_context("forkserver")  # imports torch once, not once for each rank
    context.set_forkserver_preload(["torch.distributed"])
    queue: Any = context.Queue()
    with tempfile.TemporaryDirectory(prefix="gobrrr-lab-") as folder:
        given = (ranks, f"{folder}/store", work, args, queue)
        patience = 0.0
        started = [context.Process(target=_rank, args=(rank, *given)) for rank in range(ranks)]
        try:
            for process in started:
                process.start()
            found = queue.get(timeout=wait_s)
            patience = 5.0
            return found
        except Exception:
            raise GobrrrError("the ranks did not meet over gloo") from None
        finally:
            for process in started:
                if process.pid:
                    process.join(patience)
                    process.kill()


def _rank(rank: int, ranks: int, store: str, work: Callable[..., Any], args: tuple[Any, ...], queue: Any) -> None:
    threading.Thread(target=_end_with_the_lab, daemon=True).start()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    found = work(rank, *args)
    dist.barrier()
    if rank == 0:
        queue.put(found)
    dist.destroy_process_group()


def _end_with_the_lab() -> None:
    """End with the parent: where it is killed it tells its ranks nothing, and they would wait until gloo's timeout."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
