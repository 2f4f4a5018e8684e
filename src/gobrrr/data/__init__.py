"""Parts for the input pipeline that people can use alone: sequences packed, batches ahead, prompts batched.

`pack` and `simulate` need NumPy alone; what is drawn by a DataLoader or touches tensors imports torch on first use.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gobrrr.data.advice import Advice, simulate
    from gobrrr.data.ahead import Prefetch, prefetch
    from gobrrr.data.packing.buckets import BucketBatchSampler, DistributedBucketBatchSampler, order_distance
    from gobrrr.data.packing.collate import (
        PackingCollate,
        block_mask,
        cu_seqlens,
        document_losses,
        global_labels,
        mask_mod,
        token_loss,
    )
    from gobrrr.data.packing.datasets import PackedDataset, PackingDataset
    from gobrrr.data.packing.pack import Bins, efficiency, lower_bound, pack
    from gobrrr.data.packing.packable import check_packable
    from gobrrr.data.prompts import generated

__all__ = [
    "Advice", "Bins", "BucketBatchSampler", "DistributedBucketBatchSampler", "PackedDataset", "PackingCollate",
    "PackingDataset", "Prefetch", "block_mask", "check_packable", "cu_seqlens", "document_losses", "efficiency",
    "generated", "global_labels", "lower_bound", "mask_mod", "order_distance", "pack", "prefetch", "simulate",
    "token_loss",
]  # fmt: skip

# Modules of this room, imported on first use, and the names that each defines.
_NAMES = {
    "advice": ("Advice", "simulate"),
    "ahead": ("Prefetch", "prefetch"),
    "packing.buckets": ("BucketBatchSampler", "DistributedBucketBatchSampler", "order_distance"),
    "packing.collate": ("PackingCollate", "block_mask", "cu_seqlens", "document_losses", "global_labels", "mask_mod",
                        "token_loss"),
    "packing.datasets": ("PackedDataset", "PackingDataset"),
    "packing.pack": ("Bins", "efficiency", "lower_bound", "pack"),
    "packing.packable": ("check_packable",),
    "prompts": ("generated",),
}  # fmt: skip
_LAZY = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'gobrrr.data' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(f"gobrrr.data.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
