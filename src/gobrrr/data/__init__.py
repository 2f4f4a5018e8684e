"""Parts for the input pipeline that people can use alone: sequences packed and bucketed, and what each would bring.

None of it needs torch.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gobrrr.data.advice import Advice, simulate
    from gobrrr.data.bins import Bins
    from gobrrr.data.buckets import BucketBatchSampler, DistributedBucketBatchSampler, order_distance
    from gobrrr.data.packing import efficiency, lower_bound, pack

__all__ = [
    "Advice",
    "Bins",
    "BucketBatchSampler",
    "DistributedBucketBatchSampler",
    "efficiency",
    "lower_bound",
    "order_distance",
    "pack",
    "simulate",
]

# Name -> the module of this room that defines it, imported on first use.
_LAZY = {
    "Advice": "advice",
    "Bins": "bins",
    "BucketBatchSampler": "buckets",
    "DistributedBucketBatchSampler": "buckets",
    "efficiency": "packing",
    "lower_bound": "packing",
    "order_distance": "buckets",
    "pack": "packing",
    "simulate": "advice",
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
