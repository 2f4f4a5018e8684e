"""Memory that a forked child must never free.

What was used on another stream than its own has events made as it is freed: a device's tensor after `record_stream`,
and pinned memory that was copied from without blocking. A forked child cannot call CUDA, and torch ends it with SIGABRT
from within the destructor. A loader's worker need not touch such a tensor for that: what was garbage in a cycle at the
fork is collected in the child as well.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

FEW = 64
"""Storages that may be known before it is worth looking which of them are still there."""


class Marked:
    """Storages by a weak reference of torch's own: Python's would not see that a view or a graph holds one."""

    def __init__(self) -> None:
        self._known: set[StorageWeakRef] = set()
        self._most = FEW

    def add(self, tensor: Tensor) -> None:
        """Before its memory is marked."""
        self._known.add(_weak(tensor.untyped_storage()))
        if len(self._known) > self._most:
            self._forget()
            self._most = max(FEW, 2 * len(self._known))  # a program may keep all of its batches

    def _forget(self) -> None:
        for each in list(self._known):
            if each.expired():  # type: ignore[no-untyped-call]
                self._known.discard(each)

    def keep(self) -> None:
        """In a forked child: what is still there stays for ever, the interpreter's own end included."""
        for each in list(self._known):
            storage = torch.UntypedStorage._new_with_weak_ptr(each.cdata)
            if storage is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(storage))


_weak: Callable[[torch.UntypedStorage], StorageWeakRef] = StorageWeakRef

MARKED = Marked()

if hasattr(os, "register_at_fork"):  # who cannot fork has no such children
    os.register_at_fork(after_in_child=MARKED.keep)
