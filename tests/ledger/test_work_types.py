"""Sizes by hand and by torch: dtypes, addresses, broadcasting, and the dtype of a result."""

# ruff: noqa: E501  (a case is a line)
from __future__ import annotations

import math

import pytest

from gobrrr.ledger.work.tensor import SCALAR_TYPES, Tensor, broadcast, distinct_elements, element
from tests.ledger.test_work import F, H, L, counted

INT, D, Z, BOOL = "int", "double", "c10::complex<float>", "bool"


TORCH_TYPES = {"bool": "bool", "unsigned char": "uint8", "signed char": "int8", "char": "int8", "short": "int16", "short int": "int16",
               "unsigned short": "uint16", "short unsigned int": "uint16", "int": "int32", "unsigned int": "uint32", "long": "int64",
               "long int": "int64", "long long": "int64", "unsigned long": "uint64", "long unsigned int": "uint64",
               "c10::Half": "float16", "c10::BFloat16": "bfloat16", "float": "float32", "double": "float64",
               "c10::complex<c10::Half>": "complex32", "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
               "c10::Float8_e5m2": "float8_e5m2", "c10::qint8": "qint8", "c10::quint8": "quint8", "c10::qint32": "qint32",
               "CUDAFloatType": "float32", "CPUHalfType": "float16", "torch.cuda.LongTensor": "int64", "CPUByteType": "uint8"}  # fmt: skip


@pytest.mark.parametrize("name", TORCH_TYPES)
def test_dtypes_are_as_large_as_torchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, TORCH_TYPES[name])
    kind = 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == torch.bool else 1
    assert element(name) == (kind, dtype.itemsize)


def test_numbers_of_dtypes_are_as_large_as_torchs() -> None:
    """c10/core/ScalarType.h, in its order; 44 is the float8 of block scales, a byte of exponent."""
    torch = pytest.importorskip("torch")
    order = "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 bfloat16"
    late = {
        23: "float8_e5m2",
        24: "float8_e4m3fn",
        25: "float8_e5m2fnuz",
        26: "float8_e4m3fnuz",
        27: "uint16",
        28: "uint32",
        29: "uint64",
    }
    known = dict(enumerate(order.split())) | late | {44: "float8_e8m0fnu"}
    sizes = {number: getattr(torch, name).itemsize for number, name in known.items() if hasattr(torch, name)}
    assert len(sizes) >= 23
    assert {number: SCALAR_TYPES[number] for number in sizes} == sizes
    assert [SCALAR_TYPES.get(n) for n in (16, 22, 30, 99, -1)] == [None] * 5


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (3, 1), (), (5,), (0, 3), (2, 3, 4)])
@pytest.mark.parametrize("step", [0, 1, 2, 5])
def test_distinct_elements_are_addresses(shape: tuple[int, ...], step: int) -> None:
    """Expanded (stride 0) and overlapping along one dimension: counted by listing the addresses."""
    contiguous = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    for expanded in range(len(shape)):
        strides = [0 if i == expanded else s for i, s in enumerate(contiguous)]
        assert distinct_elements(shape, strides) == _addresses(shape, strides)
    if len(shape) == 1:
        assert distinct_elements(shape, [step]) == _addresses(shape, [step])
    assert distinct_elements(shape, ()) == math.prod(shape)


def _addresses(shape: tuple[int, ...], strides: list[int]) -> int:
    found = {0}
    for dim, stride in zip(shape, strides, strict=True):
        found = {address + i * stride for address in found for i in range(dim)}
    return len(found)


def test_rows_that_overlap_hold_no_more_than_their_span() -> None:
    """Windows of 4 that begin one apart, as unfold makes them: 10 of them reach 13 elements."""
    assert distinct_elements((10, 4), (1, 1)) == 13
    assert distinct_elements((10, 4), (-1, 1)) == 13


def test_shapes_broadcast_as_numpy_does() -> None:
    numpy = pytest.importorskip("numpy")
    for shapes in (
        [(3, 1), (1, 4)],
        [(5,), (2, 1, 5)],
        [(), (3,)],
        [(1, 1), (1,)],
        [(0, 3), (1, 3)],
        [(4, 1), (3,), (1, 1)],
    ):
        assert broadcast(shapes) == numpy.broadcast_shapes(*shapes)


def test_a_tensor_knows_its_size() -> None:
    held = Tensor((3, 4), 2, 4, 3)
    assert (held.numel, held.nbytes, held.madd) == (12, 12, 2)


@pytest.mark.parametrize(
    ("name", "args", "size"),
    [
        ("add", [(F, 7), (D,), 1], 28 + 8 + 28),  # 0-d does not raise the size
        ("add", [(INT, 7), (F,), 1], 28 + 4 + 28),  # but the category, and then its own size counts
        ("add", [(BOOL, 7), (L, 7), 1], 7 + 56 + 56),
        ("mul", [(H, 7), (F, 7)], 14 + 28 + 28),
        ("sqrt", [(BOOL, 7)], 7 + 28),
        ("sqrt", [(D, 7)], 56 + 56),
        ("abs", [(Z, 7)], 56 + 28),
        ("abs", [(F, 7)], 28 + 28),
        ("isnan", [(Z, 7)], 56 + 7),
        ("pow", [(L, 7), 2], 56 + 56),
        ("pow", [(L, 7), "1e3"], 56 + 28),
        ("mul", [(L, 7), -2.5], 56 + 28),
        ("mul", [(L, 7), "inf"], 56 + 28),
        ("div", [(L, 7), 2], 56 + 28),
        ("frexp", [(D, 7)], 56 + 56 + 28),
        ("complex", [(F, 7), (F, 1)], 28 + 4 + 56),
        ("glu", [(F, 11, 14), 1], 616 + 308),
        ("glu_backward", [(F, 11, 7), (F, 11, 14), 1], 308 + 616 + 616),
        ("_prelu_kernel_backward", [(F, 11, 7), (F, 11, 7), (F, 11, 7)], 3 * 308 + 2 * 308),
        ("log_sigmoid_forward", [(F, 7)], 28 + 56),
        ("rrelu_with_noise", [(F, 7), (F, 7), 0.1, 0.3, True, None], 28 + 56),
        ("rrelu_with_noise", [(F, 7), (F, 7), 0.1, 0.3, False, None], 28 + 28),
        ("linalg_cross", [(F, 11, 3), (F, 1, 3), -1], 132 + 12 + 132),
        ("equal", [(F, 7), (F, 7)], 56),
        ("lerp", [(F, 7), (F, 7), (F, 7)], 84 + 28),
        ("clamp", [(F, 7), 0, 1], 28 + 28),
        ("add_", [(H, 7), (F, 7), 1], 14 + 28 + 14),  # in place the result keeps its dtype
    ],
)
def test_results_have_the_dtype_that_torch_gives_them(name: str, args: list[object], size: float) -> None:
    assert counted(name, *args).bytes == size
