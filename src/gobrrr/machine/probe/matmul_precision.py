"""How torch multiplies fp32 matrices: what it says of it, and what sets it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NAMES = {"bf16": "medium", "tf32": "high"}


def matmul_precision(torch: Any) -> str:
    """highest, high or medium. Where the program has set one library's alone (torch.backends.mkldnn.matmul), torch
    refuses to tell one for all: that of the library that multiplies."""
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        library = torch.backends.cuda if torch.cuda.is_initialized() else torch.backends.mkldnn
        return NAMES.get(library.matmul.fp32_precision, "highest")


def setting_back(torch: Any) -> Callable[[], None]:
    """The function that sets it to what it is now, of each library too."""
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:
        before = "highest"  # its own default, beside which a library's setting is refused
    libraries: list[Any] = [getattr(each, "matmul", None) for each in (torch.backends.cuda, torch.backends.mkldnn)]
    known = [(each, each.fp32_precision) for each in libraries if hasattr(each, "fp32_precision")]  # torch 2.9 or newer

    def back() -> None:
        torch.set_float32_matmul_precision(before)
        for matmul, precision in known:
            if matmul.fp32_precision != precision:
                matmul.fp32_precision = precision

    return back
