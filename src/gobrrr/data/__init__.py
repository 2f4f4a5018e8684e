"""Parts for the input pipeline that people can use alone: sequences packed, batches ahead.

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

__all__ = [
    "Advice",
    "Bins",
    "BucketBatchSampler",
    "DistributedBucketBatchSampler",
    "PackedDataset",
    "PackingCollate",
    "PackingDataset",
    "Prefetch",
    "block_mask",
    "check_packable",
    "cu_seqlens",
    "document_losses",
    "efficiency",
    "global_labels",
    "lower_bound",
    "mask_mod",
    "order_distance",
    "pack",
    "prefetch",
    "simulate",
    "token_loss",
]

# Name -> the module of this room that defines it, imported on first use.
_LAZY = {
    "Advice": "advice",
    "Bins": "packing.pack",
    "BucketBatchSampler": "packing.buckets",
    "DistributedBucketBatchSampler": "packing.buckets",
    "PackedDataset": "packing.datasets",
    "PackingCollate": "packing.collate",
    "PackingDataset": "packing.datasets",
    "Prefetch": "ahead",
    "block_mask": "packing.collate",
    "check_packable": "packing.packable",
    "cu_seqlens": "packing.collate",
    "document_losses": "packing.collate",
    "efficiency": "packing.pack",
    "global_labels": "packing.collate",
    "lower_bound": "packing.pack",
    "mask_mod": "packing.collate",
    "order_distance": "packing.buckets",
    "pack": "packing.pack",
    "prefetch": "ahead",
    "simulate": "advice",
    "token_loss": "packing.collate",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'gobrrr.data' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(f"gobrrr.data.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
