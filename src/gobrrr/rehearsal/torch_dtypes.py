"""The profiler's dtypes in torch, and how many bytes they take. Standard library alone."""

from __future__ import annotations

from typing import Any

DTYPES = {
    "double": ("float64", 8), "float": ("float32", 4), "c10::BFloat16": ("bfloat16", 2), "c10::Half": ("float16", 2),
    "long int": ("int64", 8), "int": ("int32", 4), "bool": ("bool", 1),
    "signed char": ("int8", 1), "unsigned char": ("uint8", 1),
}  # fmt: skip


def of_torch(torch: Any, name: str) -> Any:
    """torch.float32 for 'float'."""
    return getattr(torch, DTYPES[name][0])
