"""Dropout's masks from a quarter of the random numbers."""

from __future__ import annotations

import os
import warnings
from typing import Any

from gobrrr.remedies.edits.forms import AddStatement
from gobrrr.remedies.layers.mask_bits import fill
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.compute.random_numbers import LEAST, RARE

OP = "bernoulli_.float"
SOURCE = f"""\
import os

_drawn_by_torch, _process = torch.library.get_kernel("aten::{OP}", "CPU"), os.getpid()


def _packed(keys, noise, p=0.5, *, generator=None):  # a dropout mask: four elements from each random number
    flat = noise.is_contiguous() and noise.is_floating_point()
    if noise.numel() < {LEAST} or not flat or not {RARE} <= p <= {1 - RARE} or os.getpid() != _process:
        return _drawn_by_torch.call_boxed(keys, noise, p, generator=generator)
    numbers = torch.empty(-(-noise.numel() // 4), dtype=torch.int64, device="cpu")
    bits = numbers.random_(-(2**63), None, generator=generator).view(torch.int16)[: noise.numel()]
    noise.view(-1).copy_(bits.lt_(round(p * 2**16) - 2**15))
    return noise


_masks = torch.library.Library("aten", "IMPL")
_masks.impl("{OP}", _packed, "CPU", with_keyset=True)"""


class PackedMasks(Remedy):
    """torch fills a mask on the CPU in one thread, a 64-bit number of the generator for each element. Here each number
    makes four elements, by 16 bits each, from the same generator: seeds, saved states and torch.utils.checkpoint work
    as before. The chance of a drop is a multiple of 2^-16, off by 7.6e-6 at most. Small masks, strided ones, and
    chances below 1 % are drawn as ever."""

    name = "packed_masks"
    title = "draws four elements of a dropout mask from each random number"
    safety = "order"
    judged_without_dropout = True
    serves = "training"
    overlaps = ("compile", "compile_max_autotune", "compile_reduce_overhead", "compile_memory_budget")
    by_hand = SOURCE
    edit = AddStatement(SOURCE)

    def probe(self) -> str:
        import torch

        if not hasattr(torch.library, "get_kernel"):
            return "this torch has no torch.library.get_kernel"
        mask = fill(torch.empty(2**16), 0.75, torch.Generator().manual_seed(0))
        ones = int((mask == 1).sum())  # the guard, which watches without dropout, sees no mask
        right = abs(ones - 0.75 * 2**16) < 500 and ones + int((mask == 0).sum()) == 2**16  # 4.5 deviations
        return "" if right else "this torch draws other masks than were asked for"

    def apply(self, seams: Seams) -> None:
        import torch

        plain, process = torch.library.get_kernel(f"aten::{OP}", "CPU"), os.getpid()

        def bernoulli_(keys: Any, noise: Any, p: float = 0.5, *, generator: Any = None) -> Any:
            flat = noise.is_contiguous() and noise.is_floating_point()
            # torch draws in one thread; ours are ops of several, which a forked child may wait for in vain
            if noise.numel() < LEAST or not RARE <= p <= 1 - RARE or not flat or os.getpid() != process:
                return plain.call_boxed(keys, noise, p, generator=generator)
            return fill(noise, p, generator)

        library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        seams.undo(library._destroy)
        bernoulli_.library = library  # type: ignore[attr-defined]  # it registers for as long as it lives
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is another one from now on
            library.impl(OP, bernoulli_, "CPU", with_keyset=True)
        seams.applied(self.name, f"for masks of {LEAST:,} elements or more")  # none comes where dropout is off
