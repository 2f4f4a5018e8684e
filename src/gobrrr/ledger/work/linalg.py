"""Factorisations and Fourier transforms, by the leading terms of the textbook counts (Golub and Van Loan, Matrix
Computations, 4th edition): approximations, right for large matrices. What runs inside LAPACK is iterative for
eigenvalues and singular values, so those are typical figures."""

from __future__ import annotations

import math
from collections.abc import Callable

from gobrrr.ledger.work.call import FORMULAS, Call, Work, formula, work
from gobrrr.ledger.work.tensor import NotCounted, Tensor, read, written

Count = Callable[[float, float], float]


def _lu(m: float, n: float) -> float:
    """Steps of an outer product each: the sum of 2 (m - k) (n - k) over the r columns of the smaller side."""
    r = min(m, n)
    return 2 * m * n * r - (m + n) * r**2 + 2 * r**3 / 3


def _reflections(m: float, n: float, k: float) -> float:
    """k reflections of m rows, each a row shorter, on the n columns that are left: a QR's R; its Q with n = k."""
    return 4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 / 3


# FLOPs of one m by n matrix. Second figure: results, in multiples of the input's size.
FACTORISATIONS: dict[str, tuple[Count, float]] = {
    "linalg_cholesky_ex": (lambda m, n: n**3 / 3, 1),
    "cholesky": (lambda m, n: n**3 / 3, 1),
    "cholesky_inverse": (lambda m, n: 2 * n**3 / 3, 1),
    "linalg_lu_factor_ex": (_lu, 1),
    "linalg_lu": (_lu, 2),
    "_linalg_det": (lambda m, n: 2 * n**3 / 3, 1),
    "_linalg_slogdet": (lambda m, n: 2 * n**3 / 3, 1),
    "linalg_inv_ex": (lambda m, n: 2 * n**3, 1),
    "linalg_ldl_factor_ex": (lambda m, n: n**3 / 3, 1),
    "linalg_qr": (lambda m, n: _reflections(m, n, min(m, n)) + _reflections(m, min(m, n), min(m, n)), 2),
    "geqrf": (lambda m, n: _reflections(m, n, min(m, n)), 1),
    "_linalg_eigh": (lambda m, n: 9 * n**3, 1),
    "linalg_eig": (lambda m, n: 25 * n**3, 2),
    "_linalg_svd": (lambda m, n: 4 * max(m, n) ** 2 * min(m, n) + 22 * min(m, n) ** 3, 2),
    "linalg_matrix_exp": (lambda m, n: 16 * n**3, 1),
}
TYPICAL = frozenset({"_linalg_eigh", "linalg_eig", "_linalg_svd", "linalg_matrix_exp"})
"""Iterations, or squarings, as many as the numbers ask for: these may need fewer FLOPs. The others need all."""


def _matrices(x: Tensor) -> tuple[int, int, int]:
    """(how many, rows, columns)."""
    *batch, m, n = x.shape
    return math.prod(batch), m, n


def _factorise(call: Call) -> Work:
    x = call.tensor(0)
    count, results = FACTORISATIONS[call.name]
    batch, m, n = _matrices(x)
    kind = "linalg" if call.name in TYPICAL else "solve"
    return work(kind, batch * x.madd / 2 * count(m, n), read(x), results * written(x))


FORMULAS.update(dict.fromkeys(FACTORISATIONS, _factorise))


# name: (position of the matrix or its factors, of the right-hand sides, triangular systems per column, whether the
# matrix is factorised first, whether it is written out again)
SOLVES = {
    "_linalg_solve_ex": (0, 1, 2, True, True),
    **dict.fromkeys(("linalg_lu_solve", "linalg_ldl_solve"), (0, 2, 2, False, False)),
    "linalg_solve_triangular": (0, 1, 1, False, False),
    "triangular_solve": (1, 0, 1, False, True),
    **dict.fromkeys(("cholesky_solve", "_cholesky_solve_helper"), (1, 0, 2, False, False)),
}


@formula(SOLVES)
def solve(call: Call) -> Work:
    """(A, B), (LU, pivots, B), (LD, pivots, B); triangular_solve(B, A), cholesky_solve(B, L)."""
    a_at, b_at, systems, factorises, copies = SOLVES[call.name]
    a, b = call.tensor(a_at), call.tensor(b_at)
    batch, n, _ = _matrices(a)
    columns = b.numel / max(batch * n, 1)
    flops = batch * (factorises * 2 * n**3 / 3 + systems * n * n * columns)
    return work("solve", a.madd / 2 * flops, read(a, b), written(b), copies * written(a))


@formula("linalg_lstsq")
def lstsq(call: Call) -> Work:
    """(A, B): by QR."""
    a, b = call.tensor(0), call.tensor(1)
    batch, m, n = _matrices(a)
    r, columns = min(m, n), b.shape[-1] if len(b.shape) == len(a.shape) else 1
    flops = _reflections(m, n, r) + columns * (4 * m * n - r * r)
    return work("solve", a.madd / 2 * batch * flops, read(a, b), written(b))


@formula("linalg_householder_product")
def householder_product(call: Call) -> Work:
    """(A (m, n), tau (k)): the first n columns of a product of k reflections."""
    x, tau = call.tensor(0), call.tensor(1)
    batch, m, n = _matrices(x)
    return work("solve", batch * x.madd / 2 * _reflections(m, n, tau.shape[-1]), read(x, tau), written(x))


@formula("ormqr")
def ormqr(call: Call) -> Work:
    """(A, tau (k), C, left): k reflections applied to C from one side, along which each is shorter by one."""
    tau, c = call.tensor(1), call.tensor(2)
    batch, rows, columns = _matrices(c)
    side, other, k = (rows, columns, tau.shape[-1]) if call.flag(3, True) else (columns, rows, tau.shape[-1])
    flops = batch * other * (4 * side * k - 2 * k**2)
    return work("solve", c.madd / 2 * flops, read(call.tensor(0), tau, c), written(c))


@formula("lu_unpack")
def lu_unpack(call: Call) -> Work:
    """(LU, pivots): P, L and U written out."""
    x = call.tensor(0)
    batch, m, n = _matrices(x)
    return work("linalg", 0, read(x, call.maybe(1)), batch * (m * m + (m + n) * min(m, n)) * x.itemsize)


@formula("_fft_c2c _fft_r2c _fft_c2r")
def fft(call: Call) -> Work:
    """(self, dims, normalization, ...): 5 n log2 n per transform of n complex points, half of it for real ones."""
    x, dims = call.tensor(0), call.sizes(1)
    if not dims or not x.shape:
        raise NotCounted("dimensions of the transform were not recorded")
    points, out = x.numel, x.numel * x.itemsize
    last = x.shape[dims[-1] % len(x.shape)]
    length = math.prod(x.shape[d % len(x.shape)] for d in dims)
    if call.name == "_fft_r2c":
        out = 2 * x.numel * x.itemsize
        out = out // max(last, 1) * (last // 2 + 1) if call.flag(3) else out
    elif call.name == "_fft_c2r":
        whole = int(call.number(3))  # the last dimension holds half of what comes out
        points, length = x.numel // max(last, 1) * whole, length // max(last, 1) * whole
        out = points * x.itemsize // 2
    per_point = (5.0 if call.name == "_fft_c2c" else 2.5) * math.log2(max(length, 2))
    return work("fft", per_point * points, read(x), out)
