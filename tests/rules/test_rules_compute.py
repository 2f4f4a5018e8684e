"""BRR101 to BRR104: number formats, against the ceilings of machines made by hand."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from gobrrr.recording.model.facts import Facts, OptimizerFacts, Settings, Span
from tests.support.handmade import LINE, MS, OTHER_LINE, Case, machine, op, product

SMALL_ERROR = Facts(settings=Settings(matmul_precision="highest"))


def in_double() -> Case:
    cast = op("copy_", (1024, 1024), (1024, 1024), dtypes=("double", "float"), ms=2)
    work = product(1024, 1024, 1024, gflops=90, dtype="double", where=(OTHER_LINE,))
    return Case(ops=(op("relu", (1024, 1024), ms=1), cast, work, op("add", (1024, 1024), dtype="double", ms=8)))


def test_a_model_in_double_is_no_tensor_to_be_mended_by_itself():
    """One of the two alone is an error of torch (pytorch/examples' time_sequence_prediction)."""
    case = in_double()
    case.facts = Facts(optimizers=(OptimizerFacts(0, num_elements=100, param_bytes=800),))
    (found,) = case.raised("BRR101")
    assert "parameters are float64" in found.message and "both" in found.advice
    assert "where it is created" in in_double().raised("BRR101")[0].advice


def test_double_is_found_at_the_line_where_it_comes_in():
    (found,) = in_double().raised("BRR101")
    assert found.where == (LINE,)
    assert found.severity in ("warning", "critical")
    # The cast goes away (2 ms), the product halves (11.9 of 23.9 ms), the addition moves half the bytes (4 of 8 ms).
    assert found.saving.expected_ns == pytest.approx(17.9 * MS, rel=0.02)
    assert found.saving.ceiling_ns <= 33.9 * MS


def test_a_copy_from_double_to_double_is_no_cast():
    copied = op("copy_", (1024, 1024), (1024, 1024), dtype="double", ms=20)
    assert Case(ops=(copied,)).raised("BRR101")[0].saving.expected_ns == 10 * MS


def test_double_product_gains_what_the_ceilings_say():
    slow = Case(ops=(product(1024, 1024, 1024, gflops=20, dtype="double"),), ms=200, machine=machine(fp64=10))
    (found,) = slow.raised("BRR101")
    assert found.saving.expected_ns == pytest.approx(0.9 * 107.4 * MS, rel=0.01)


def test_numbers_that_look_like_double_are_not():
    scaled = op("mul", (1024, 1024), (), dtypes=("float", "double"), ms=50)
    assert not Case(ops=(scaled,)).raised("BRR101")


def test_one_double_among_the_inputs_of_a_compiled_function_says_nothing():
    call = op("relu", (64,), (64, 64), dtypes=("double", "float"), ms=50)
    assert not Case(ops=(msgspec.structs.replace(call, name="CompiledFunction"),)).raised("BRR101")


def test_double_in_the_data_phase_alone_is_not_the_models():
    assert not Case(ops=(op("stack", (64, 1000), dtype="double", phase="data", ms=50),)).raised("BRR101")


def test_entry_of_double_skips_the_picking_of_samples():
    picked = op("select", (4096, 1000), dtype="double", phase="data", where=(OTHER_LINE,), ms=1)
    used = op("add", (1024, 1024), dtype="double", ms=50)
    (found,) = Case(ops=(picked, used)).raised("BRR101")
    assert found.where == (LINE,)


def test_chosen_double_is_told_so():
    case = in_double()
    case.facts = Facts(settings=Settings(default_dtype="torch.float64"))
    assert "default dtype" in case.raised("BRR101")[0].message


def fp32_products(**rates: float) -> Case:
    heavy = product(1024, 1024, 1024, gflops=180, where=(LINE, Span("train.py", 7)))
    return Case(ops=(heavy, product(1024, 1024, 64, where=(OTHER_LINE,))), ms=16, machine=machine(**rates))


def test_bf16_is_told_where_its_ceiling_is_higher():
    (found,) = fp32_products(bf16=400).raised("BRR102")
    assert found.where[0] == LINE
    assert found.severity == "critical"
    assert found.saving.expected_ns == pytest.approx(0.7 * 0.75 * 12.68 * MS, rel=0.01)


@pytest.mark.parametrize(("phase", "dtype", "told"), [("forward", "float", True), ("backward", "float", False),
                                                      ("forward", "long int", False)])  # fmt: skip
def test_what_is_assigned_by_index_has_to_be_cast_under_autocast(phase: str, dtype: str, told: bool) -> None:
    """torch refuses it otherwise: what each expert gives for its tokens."""
    case = fp32_products(bf16=400)
    assigned = op("index_put_", (64, 32), (), (8, 32), phase=phase, dtypes=(dtype, "", dtype), ms=0.1)
    case.ops = (*case.ops, assigned)
    (found,) = case.raised("BRR102")
    assert found.advice.startswith("Run the forward under torch.autocast")
    assert ("x[i] = y.to(x.dtype)" in found.advice) == told


@pytest.mark.parametrize(
    ("name", "phase", "told"),
    [
        ("linalg_cholesky_ex", "forward", False), ("triangular_solve", "backward", False),
        ("linalg_vector_norm", "other", True), ("linalg_cholesky_ex", "optimizer", True),
    ],
)  # fmt: skip
def test_bf16_is_not_told_where_the_model_factorises_matrices(name: str, phase: str, told: bool):
    case = fp32_products(bf16=400)
    case.ops = (*case.ops, op(name, (300, 300), ms=0.1, phase=phase))
    assert bool(case.raised("BRR102")) is told


def test_bf16_is_not_told_where_it_is_as_fast():
    assert not fp32_products(bf16=120).raised("BRR102")


def test_bf16_is_not_told_for_products_held_up_by_something_else():
    slow = product(1024, 1024, 1024, gflops=20)
    assert not Case(ops=(slow,), machine=machine(bf16=400)).raised("BRR102")


def test_bf16_is_told_for_products_at_a_third_of_their_ceiling():
    assert Case(ops=(product(1024, 1024, 1024, gflops=60),), machine=machine(bf16=400)).raised("BRR102")


def test_bf16_for_convolutions_is_compared_with_the_faster_fp32_path():
    conv = op("mkldnn_convolution", (8, 64, 56, 56), (64, 64, 3, 3), ms=50, flops=9e9, bound="compute")
    assert Case(ops=(conv,), machine=machine(bf16=250)).raised("BRR102")
    fast = machine(bf16=250, fp32_medium=220)
    assert not Case(ops=(conv,), machine=fast).raised("BRR102")
    # With AMX "medium" is bfloat16, and convolutions stay in fp32 all the same (a UNet: 2.3 times as fast by hand).
    lower = replace(fast, fp32_medium_error=2.9e-3)
    for precision in ("highest", "medium"):
        case = Case(ops=(conv,), machine=lower, facts=Facts(settings=Settings(matmul_precision=precision)))
        (found,) = case.raised("BRR102")
        assert found.saving.expected_ns > 0.7 * (1 - 100 / 250) * 0.9 * 50e6


@pytest.mark.parametrize(("name", "dtype"), [("fp16", "c10::Half"), ("bf16", "c10::BFloat16")])
def test_a_half_format_is_told_where_the_cpu_has_none(name: str, dtype: str):
    half = product(512, 512, 512, gflops=0.6, dtype=dtype)
    (found,) = Case(ops=(half,), ms=500, machine=machine(**{name: 0.3})).raised("BRR103")
    assert f"{name} products" in found.message
    assert found.severity == "critical"
    assert found.saving.expected_ns == pytest.approx(half.ns * (1 - 0.3 / 100))
    assert found.saving.low_ns == pytest.approx(0.5 * found.saving.expected_ns)


def test_fp16_is_not_told_where_the_cpu_has_it():
    assert not Case(ops=(product(512, 512, 512, dtype="c10::Half"),), ms=2).raised("BRR103")


def test_fp16_is_not_told_where_nobody_measured_it():
    half = product(512, 512, 512, gflops=0.6, dtype="c10::Half")
    assert not Case(ops=(half,), ms=500, machine=machine(fp16=0.0)).raised("BRR103")


def test_slow_library_path_is_told_where_medium_is_faster_at_one_error():
    (found,) = fp32_products(fp32_medium=217).raised("BRR104")
    assert found.where[0] == LINE and found.remedies == ("matmul_precision",)


@pytest.mark.parametrize("rates", [{"fp32_medium": 120}, {}])
def test_library_path_is_not_told_where_medium_gains_nothing(rates):
    assert not fp32_products(**rates).raised("BRR104")


def test_library_path_is_not_told_where_medium_is_bf16():
    case = fp32_products(fp32_medium=400)
    case.machine = replace(case.machine, fp32_medium_error=2.9e-3)
    assert not case.raised("BRR104")


def test_library_path_is_not_told_where_it_was_chosen_already():
    case = fp32_products(fp32_medium=217)
    case.facts = Facts(settings=Settings(matmul_precision="medium"))
    assert not case.raised("BRR104")
