"""What a kernel's name says: its class of work, and whether it uses matrix units."""

from __future__ import annotations

import re
from functools import cache

# First match wins. Names of cuBLAS, cuDNN, CUTLASS, rocBLAS/Tensile, MIOpen, Triton templates and ATen.
_CLASSES = (
    ("attention", re.compile(r"flash|fmha|attention|attn_", re.I)),
    ("convolution", re.compile(r"conv|winograd|implicit_gemm|dgrad|wgrad|fprop|miopen", re.I)),
    ("matmul", re.compile(r"gemm|gemv|splitk|cutlass|cublas|Cijk_|matmul|nvjet|triton_mm|addmm", re.I)),
    ("reduction", re.compile(r"reduce|softmax|norm|welford|_red_|triton_red|triton_per", re.I)),
    ("elementwise", re.compile(r"elementwise|vectorized|unrolled|foreach|multi_tensor|triton_poi|copy", re.I)),
)
TENSOR_CORE = re.compile(r"tensorop|s\d{3,5}gemm|h\d{3,5}gemm|hmma|imma|wgmma|gmma|xmma|mfma|_tc|bf16gemm|nvjet", re.I)


@cache
def kernel_class(name: str) -> str:
    """matmul, convolution, attention, elementwise, reduction or other, by the kernel's name."""
    return next((label for label, pattern in _CLASSES if pattern.search(name)), "other")
