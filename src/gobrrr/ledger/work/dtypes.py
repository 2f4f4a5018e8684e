"""Sizes of dtypes: of the C++ type names that torch.profiler writes, and of ScalarType numbers among the arguments."""

from __future__ import annotations

import re

BOOL, INTEGER, FLOATING, COMPLEX = range(4)

_SIZES: dict[str, tuple[int, int]] = {
    "bool": (BOOL, 1),
    "unsigned char": (INTEGER, 1),
    "signed char": (INTEGER, 1),
    "char": (INTEGER, 1),
    "short": (INTEGER, 2),
    "short int": (INTEGER, 2),
    "unsigned short": (INTEGER, 2),
    "short unsigned int": (INTEGER, 2),
    "int": (INTEGER, 4),
    "unsigned int": (INTEGER, 4),
    "long": (INTEGER, 8),
    "long int": (INTEGER, 8),
    "long long": (INTEGER, 8),
    "unsigned long": (INTEGER, 8),
    "long unsigned int": (INTEGER, 8),
    "half": (FLOATING, 2),
    "bfloat16": (FLOATING, 2),
    "float": (FLOATING, 4),
    "double": (FLOATING, 8),
    "complex<half>": (COMPLEX, 4),
    "complex<float>": (COMPLEX, 8),
    "complex<double>": (COMPLEX, 16),
    "qint8": (INTEGER, 1),
    "quint8": (INTEGER, 1),
    "qint32": (INTEGER, 4),
    # spellings of a tensor type instead of an element type ("CUDAHalfType")
    "byte": (INTEGER, 1),
    "longint": (INTEGER, 8),
    "complexfloat": (COMPLEX, 8),
    "complexdouble": (COMPLEX, 16),
}
# c10::ScalarType, as a dtype argument is recorded ("6" is float32); gaps are types without a fixed element size.
_SCALAR_TYPES = {
    **{0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 8: 4, 9: 8, 10: 16, 11: 1, 12: 1, 13: 1, 14: 4, 15: 2},
    **{23: 1, 24: 1, 25: 1, 26: 1, 27: 2, 28: 4, 29: 8, 44: 1},
}
_WRAPPING = re.compile(r"^(cuda|cpu|xpu|hip|mps)(?=[a-z])|type$|tensor$")


def element(name: str) -> tuple[int, int] | None:
    """(category, bytes per element) of a recorded dtype, device-typed spellings included; None where it is not one."""
    plain = name.replace("c10::", "").replace("at::", "").replace("torch.cuda.", "").replace("torch.", "")
    plain = plain.strip().lower()
    if plain.startswith("float8"):
        return FLOATING, 1
    return _SIZES.get(plain) or _SIZES.get(_WRAPPING.sub("", _WRAPPING.sub("", plain)))


def scalar_type_size(number: int) -> int | None:
    """Bytes per element of a ScalarType number; None where it is unknown."""
    return _SCALAR_TYPES.get(number)
