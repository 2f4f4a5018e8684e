"""Parts for the input pipeline that people can use alone: sequences packed, samples computed once, batches ahead.

`pack` and `simulate` need NumPy alone; what is drawn by a DataLoader or touches tensors imports torch on first use.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gobrrr.data.advice import Advice, simulate
    from gobrrr.data.ahead import Prefetch, prefetch
    from gobrrr.data.bins import Bins
    from gobrrr.data.buckets import BucketBatchSampler, DistributedBucketBatchSampler, order_distance
    from gobrrr.data.cached import CachedDataset, cache
    from gobrrr.data.collate import PackingCollate
    from gobrrr.data.datasets import PackedDataset, PackingDataset
    from gobrrr.data.loss import document_losses, global_labels, token_loss
    from gobrrr.data.masks import block_mask, cu_seqlens, mask_mod
    from gobrrr.data.packable import check_packable
    from gobrrr.data.packing import efficiency, lower_bound, pack

__all__ = [
    "Advice",
    "Bins",
    "BucketBatchSampler",
    "CachedDataset",
    "DistributedBucketBatchSampler",
    "PackedDataset",
    "PackingCollate",
    "PackingDataset",
    "Prefetch",
    "block_mask",
    "cache",
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
    "Bins": "bins",
    "BucketBatchSampler": "buckets",
    "CachedDataset": "cached",
    "DistributedBucketBatchSampler": "buckets",
    "PackedDataset": "datasets",
    "PackingCollate": "collate",
    "PackingDataset": "datasets",
    "Prefetch": "ahead",
    "block_mask": "masks",
    "cache": "cached",
    "check_packable": "packable",
    "cu_seqlens": "masks",
    "document_losses": "loss",
    "efficiency": "packing",
    "global_labels": "loss",
    "lower_bound": "packing",
    "mask_mod": "masks",
    "order_distance": "buckets",
    "pack": "packing",
    "prefetch": "ahead",
    "simulate": "advice",
    "token_loss": "loss",
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
