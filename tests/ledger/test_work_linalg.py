"""FLOPs of factorisations and solvers against sums over their own loops, and per cube against LAPACK Working Note 41
(Blackford and Dongarra, Installation Guide for LAPACK) and Golub and Van Loan (4th edition, 5.2 and 8.6)."""

from __future__ import annotations

import math

import pytest

from tests.ledger.test_work import F, call, counted

Z = "c10::complex<float>"


def lu(m: int, n: int) -> int:
    """Right-looking: step k subtracts an outer product of what is left below and right."""
    return sum(2 * (m - k) * (n - k) for k in range(1, min(m, n) + 1))


def qr(m: int, n: int) -> int:
    """Householder: step k applies a reflection of m - k rows to n - k columns, a product and an update."""
    return sum(4 * (m - k) * (n - k) for k in range(1, min(m, n) + 1))


def reflections(m: int, n: int, k: int) -> int:
    """The first n columns of the product of k reflections of m rows, from the last backwards (orgqr)."""
    return sum(4 * (m - i) * (n - i) for i in range(1, k + 1))


SHAPES = [(200, 200), (400, 100), (100, 400), (300, 290)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_factorisation_costs_what_its_loop_does(shape: tuple[int, int]) -> None:
    """Within 2 %: the formulas are leading terms."""
    small = min(shape)
    assert counted("linalg_lu_factor_ex", (F, *shape), True, False).flops == pytest.approx(lu(*shape), rel=0.02)
    assert counted("linalg_lu", (F, *shape), True).flops == pytest.approx(lu(*shape), rel=0.02)
    assert counted("geqrf", (F, *shape)).flops == pytest.approx(qr(*shape), rel=0.02)
    both = qr(*shape) + reflections(shape[0], small, small)
    assert counted("linalg_qr", (F, *shape), "reduced").flops == pytest.approx(both, rel=0.02)


@pytest.mark.parametrize(("m", "n", "k"), [(200, 200, 200), (400, 100, 100), (400, 100, 20)])
def test_a_product_of_reflections_costs_what_its_loop_does(m: int, n: int, k: int) -> None:
    found = counted("linalg_householder_product", (F, m, n), (F, k))
    assert found.flops == pytest.approx(reflections(m, n, k), rel=0.02)
    assert found.bytes == 4 * (2 * m * n + k)


@pytest.mark.parametrize(
    ("left", "rows", "columns", "k"), [(True, 300, 50, 100), (False, 50, 300, 100), (True, 200, 7, 200)]
)
def test_reflections_applied_to_a_matrix(left: bool, rows: int, columns: int, k: int) -> None:
    """Each is shorter than the one before by one, along the side from which it comes."""
    side, other = (rows, columns) if left else (columns, rows)
    found = counted("ormqr", (F, side, k), (F, k), (F, rows, columns), left, False)
    assert found.flops == pytest.approx(sum(4 * (side - i) * other for i in range(1, k + 1)), rel=0.02)
    assert found.bytes == 4 * (side * k + k + 2 * rows * columns)


@pytest.mark.parametrize(
    ("name", "rest", "per_cube"),
    [
        ("linalg_cholesky_ex", [False, False], 1 / 3),
        ("cholesky", [False], 1 / 3),
        ("cholesky_inverse", [False], 2 / 3),
        ("linalg_ldl_factor_ex", [], 1 / 3),
        ("linalg_lu_factor_ex", [True, False], 2 / 3),
        ("linalg_lu", [True], 2 / 3),
        ("_linalg_det", [], 2 / 3),
        ("_linalg_slogdet", [], 2 / 3),
        ("linalg_inv_ex", [False], 2),
        ("linalg_qr", ["reduced"], 8 / 3),
        ("geqrf", [], 4 / 3),
        ("_linalg_eigh", ["L", True], 9),
        ("linalg_eig", [], 25),
        ("_linalg_svd", [False, True], 26),
        ("linalg_matrix_exp", [], 16),
    ],
)
def test_square_matrices_cost_their_share_of_the_cube(name: str, rest: list[object], per_cube: float) -> None:
    """Per cube of the side: doubled sides cost eight times, a batch each of its own, complex numbers four times."""
    one = counted(name, (F, 10, 10), *rest)
    assert one.flops == pytest.approx(1000 * per_cube)
    assert counted(name, (F, 20, 20), *rest).flops == pytest.approx(8000 * per_cube)
    batch = counted(name, (F, 3, 5, 10, 10), *rest)
    assert (batch.flops, batch.bytes) == (pytest.approx(15 * one.flops), 15 * one.bytes)
    assert counted(name, (Z, 10, 10), *rest).flops == pytest.approx(4 * one.flops)


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("linalg_lu", 2),
        ("linalg_qr", 2),
        ("linalg_eig", 2),
        ("_linalg_svd", 2),
        ("linalg_inv_ex", 1),
        ("geqrf", 1),
        ("cholesky", 1),
    ],
)
def test_a_factorisation_reads_its_matrix_and_writes_its_factors(name: str, results: int) -> None:
    assert counted(name, (F, 10, 10), "reduced").bytes == 400 * (1 + results)


@pytest.mark.parametrize("shape", [(60, 40), (40, 60)])
def test_singular_values_both_ways(shape: tuple[int, int]) -> None:
    """Golub and Van Loan, 8.6, R-SVD with U, S and V: 4 m m n + 22 n n n for m >= n; a wide one is turned over."""
    assert counted("_linalg_svd", (F, *shape), False, True).flops == 4 * 60 * 60 * 40 + 22 * 40**3


def test_what_iterates_promises_no_floor() -> None:
    for name in ("_linalg_eigh", "linalg_eig", "_linalg_svd", "linalg_matrix_exp"):
        assert counted(name, (F, 8, 8), "L").kind == "linalg"
    assert counted("linalg_lu", (F, 8, 8), True).kind == "solve"


A, RIGHT = (F, 2, 6, 6), (F, 2, 6, 5)
CUBE, COLUMN = 2 * 6**3, 2 * 5 * 6**2
"""Of both matrices: n^3; and n^2 for each of five columns. A triangular system needs n^2 FLOPs a column."""
BYTES_A, BYTES_B = 4 * 72, 4 * 60


@pytest.mark.parametrize(
    ("name", "args", "flops", "size"),
    [
        ("_linalg_solve_ex", [A, RIGHT, True, False], 2 / 3 * CUBE + 2 * COLUMN, 2 * BYTES_A + 2 * BYTES_B),
        ("linalg_lu_solve", [A, ("int", 2, 6), RIGHT, True, False], 2 * COLUMN, BYTES_A + 2 * BYTES_B),
        ("linalg_ldl_solve", [A, ("int", 2, 6), RIGHT, False], 2 * COLUMN, BYTES_A + 2 * BYTES_B),
        ("linalg_solve_triangular", [A, RIGHT, True, True, False], COLUMN, BYTES_A + 2 * BYTES_B),
        ("triangular_solve", [RIGHT, A, True, False, False], COLUMN, 2 * BYTES_A + 2 * BYTES_B),
        ("cholesky_solve", [RIGHT, A, False], 2 * COLUMN, BYTES_A + 2 * BYTES_B),
        ("_cholesky_solve_helper", [RIGHT, A, False], 2 * COLUMN, BYTES_A + 2 * BYTES_B),
    ],
)
def test_solvers_cost_their_triangular_systems(name: str, args: list[object], flops: float, size: float) -> None:
    found = counted(name, *args)
    assert (found.kind, found.flops, found.bytes) == ("solve", pytest.approx(flops), size)
    turned = [(Z, *arg[1:]) if isinstance(arg, tuple) and arg[0] == F else arg for arg in args]
    assert counted(name, *turned).flops == pytest.approx(4 * flops)


def test_no_matrices_are_solved_for_nothing() -> None:
    assert counted("linalg_solve_triangular", (F, 0, 6, 6), (F, 0, 6, 5), True, True, False).flops == 0
    assert counted("linalg_solve_triangular", (F, 0, 0), (F, 0, 5), True, True, False).flops == 0


@pytest.mark.parametrize(("m", "n"), [(300, 100), (100, 300), (200, 200)])
def test_least_squares_by_qr(m: int, n: int) -> None:
    """The factorisation; of a column then its reflections (4 m n - 2 r r) and a triangular system (r r)."""
    r, columns = min(m, n), 7
    found = counted("linalg_lstsq", (F, 2, m, n), (F, 2, m, columns), None, "gels")
    assert found.flops == pytest.approx(2 * (qr(m, n) + columns * (4 * m * n - r * r)), rel=0.02)
    assert found.bytes == 4 * 2 * (m * n + 2 * m * columns)


def test_unpacking_writes_three_factors() -> None:
    """P (m, m), L (m, r), U (r, n)."""
    work = counted("lu_unpack", (F, 3, 6, 4), ("int", 3, 4), True, True)
    assert (work.flops, work.bytes, work.kind) == (0, 3 * 4 * (24 + 4 + 36 + 24 + 16), "linalg")


@pytest.mark.parametrize("n", [16, 64, 1024])
def test_a_transform_costs_what_cooley_and_tukey_do(n: int) -> None:
    """Radix 2: n / 2 butterflies in each of log2 n passes, of a complex product (6 FLOPs) and two complex sums (4)."""
    passes = int(math.log2(n))
    butterflies = n // 2 * passes * 10
    assert counted("_fft_c2c", (Z, 3, n), [1], 0, True).flops == 3 * butterflies
    assert counted("_fft_r2c", (F, 3, n), [1], 0, True).flops == 3 * butterflies / 2
    assert counted("_fft_c2r", (Z, 3, n // 2 + 1), [1], 0, n).flops == pytest.approx(3 * butterflies / 2)


def test_transforms_over_several_dimensions() -> None:
    """Each dimension is transformed for all indices of the others: 5 N (log2 a + log2 b) = 5 N log2 ab."""
    work = counted("_fft_c2c", (Z, 3, 8, 32), [-2, -1], 0, True)
    assert (work.flops, work.bytes, work.kind) == (5 * 768 * 8, 2 * 8 * 768, "fft")
    half = counted("_fft_r2c", (F, 3, 8, 32), [1, 2], 0, True)
    assert (half.flops, half.bytes) == (2.5 * 768 * 8, 4 * 768 + 8 * 3 * 8 * 17)
    full = counted("_fft_r2c", (F, 3, 8, 32), [1, 2], 0, False)
    assert full.bytes == 4 * 768 + 8 * 768
    one = counted("_fft_r2c", (F, 6, 1), [1], 0, True)
    assert one.bytes == 6 * (4 + 8), "of a single point one complex number comes out"
    back = counted("_fft_c2r", (Z, 3, 8, 17), [1, 2], 0, 32)
    assert (back.flops, back.bytes) == (pytest.approx(2.5 * 768 * 8), 8 * 3 * 8 * 17 + 4 * 768)


@pytest.mark.parametrize("args", [[(Z, 8), [], 0, True], [(Z,), [0], 0, True]])
def test_a_transform_over_nothing_is_not_counted(args: list[object]) -> None:
    assert call("_fft_c2c", *args) is None
