"""Meaning of a kernel's name: its class of work, and whether it uses matrix units."""

from __future__ import annotations

import re
from functools import cache

# First match wins. Names of cuBLAS, cuDNN, CUTLASS, TensorRT-LLM, rocBLAS/Tensile, MIOpen, Triton templates and ATen.
# cuDNN's convolutions are "scudnn" in fp32 and "s884cudnn" in 16 bits, whatever else their names say (gemm, splitK).
_CLASSES = tuple(
    (label, re.compile(pattern, re.I))
    for label, pattern in (
        ("elementwise", "rotary_embedding"),
        ("other", "embedding"),
        ("attention", r"flash|fmha|attention|attn_|\bsage_(fwd|bwd)"),
        ("reduction", r"\bbn_[fb]w|(batch|layer|rms|group|instance|weight)_?norm|softmax|welford|RowwiseMoments"
         r"|GradGammaBeta|ComputeInternalGradients|ComputeBackwardFusedParams|(max|average|avg)_?pool"),
        ("convolution", r"conv(?!ert)|winograd|implicit_gemm|[dw]grad|fprop|s\d*cudnn_|igemm_(fwd|bwd|wrw)"
         r"|fft[12]d_[rc]2[rc]"),
        ("matmul", "gemm|gemv|splitk|cutlass|cublas|Cijk_|matmul|nvjet|triton_mm|triton_tem|addmm|bmm_|tcgen05"),
        ("reduction", "reduce_|reduction|DeviceReduce|norm|triton_red|triton_per"),
        ("elementwise", "elementwise|vectorized|unroll|foreach|multi_tensor|triton_poi|copy|convert|ToN(hwc|chw)Kernel"
         "|transpose|SubTensorOp|act_and_mul|transform_bias|rotary"),
    )
)  # fmt: skip
TENSOR_CORE = re.compile(
    r"tensorop|[shi]\d{3,6}(gemm|cudnn|fprop|dgrad|wgrad)|hmma|imma|wgmma|gmma|xmma(?!\w{0,80}f32f32_f32f32_f32)|mfma|_MI\d+x|_tc|bf16gemm|nvjet|tcgen05"
    r"|\bsage_fwd|E[2345]M[0123]|flash|attn_fwd|fmha|triton_mm|triton_tem",
    re.I,
)
VECTOR_UNITS = re.compile(
    r"sgemm_|_scudnn_|(engine|sgemm|winograd\w{0,80})<float|_simt_|_ffma_|f32f32_f32f32_f32", re.I
)
"""fp32 products and convolutions that say by their names that they leave the matrix units alone. Repeats are bounded: a
name made of nothing but their beginnings would be read once for each."""


@cache
def kernel_class(name: str) -> str:
    """matmul, convolution, attention, elementwise, reduction or other, by the kernel's name."""
    return next((label for label, pattern in _CLASSES if pattern.search(name)), "other")


_NOISE = re.compile(r"^void |\(anonymous namespace\)::|at::native::")
_PARAMETERS = re.compile(r"[\w>]\(")


def readable(kernel: str) -> str:
    """A kernel's name without what nobody reads: its type, torch's own namespaces, and from its parameters on."""
    name = _NOISE.sub("", kernel)
    found = _PARAMETERS.search(name)
    return (name[: found.start() + 1] if found else name) or kernel
