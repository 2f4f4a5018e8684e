"""Kernels against the work of the ops that launched them, counted by hand."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gobrrr.ledger.build import build_ledger
from gobrrr.ledger.model.accounts import device_accounts
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.model.machine import UNKNOWN, DeviceCeilings
from gobrrr.machine.model.peaks import of_device
from gobrrr.recording.trace_files.offline import of_trace
from gobrrr.recording.trace_files.sources import Source, read
from tests.support.handmade import machine, measured

TRACES = Path(os.environ.get("GOBRRR_TRACES", "../shared/traces"))
H100 = "NVIDIA H100 80GB HBM3"
US = 1000.0


class Timeline:
    """Two steps of 1000 us; the host launches op by op, the device works one kernel after the other."""

    def __init__(self, device: str = H100) -> None:
        self.events: list[dict[str, Any]] = []
        self.device, self.number = device, 0
        for step in range(2):
            self._add("user_annotation", f"ProfilerStep#{step}", 1000 * step, 1000)

    def _add(self, cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> None:
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur,
                            "args": args})  # fmt: skip

    def op(self, name: str, at: float, shapes: list[list[int]], dtype: str, kernel: str, us: float,
           inside: str = "", **args: Any) -> None:  # fmt: skip
        """In both steps: an op of 10 us at `at`, perhaps with one inside it, and its kernel of `us` 20 us later."""
        for step in range(2):
            ts = 1000 * step + at
            self.number += 1
            inputs = {"Input Dims": shapes, "Input type": [dtype] * len(shapes), **args}
            self._add("cpu_op", name, ts, 10, **inputs)
            if inside:
                self._add("cpu_op", inside, ts + 1, 8, **inputs)
            self._add("cuda_runtime", "cudaLaunchKernel", ts + 2, 4, correlation=self.number)
            self._add("kernel", kernel, ts + 20, us, tid=7, correlation=self.number, device=0, stream=7)

    def ledger(self, folder: Path) -> Ledger:
        file = folder / "trace.json.gz"
        document = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": self.device}],
                    "traceEvents": self.events}  # fmt: skip
        file.write_bytes(gzip.compress(json.dumps(document).encode()))
        return build_ledger(Profiled(of_trace(read(Source(str(file))))), UNKNOWN)


def test_a_product_is_held_against_the_data_sheet(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.op("aten::mm", 100, [[4096, 4096], [4096, 4096]], "c10::BFloat16", "nvjet_tst_128x256", 200)
    timeline.op("aten::relu", 400, [[4096, 4096]], "c10::BFloat16", "vectorized_elementwise_kernel", 100)
    ledger = timeline.ledger(tmp_path)
    work = ledger.device.work
    product, relu = work.ops
    flops, moved = 2 * 4096.0**3, 2 * 4096.0**2 * 2
    assert (product.name, product.dtype, product.bound, product.ns) == ("aten::mm", "bf16", "compute", 200 * US)
    assert product.flops == flops and product.floor_ns == pytest.approx(flops / 989.4e12 * 1e9)
    assert (relu.ns, relu.bound, relu.bytes) == (100 * US, "bandwidth", moved)
    assert relu.floor_ns == pytest.approx(moved / 3350e9 * 1e9)
    assert (work.kernel_ns, work.counted_ns, work.dtype) == (300 * US, 300 * US, "bf16")
    assert ledger.roofline.mfu == pytest.approx((flops + relu.flops) / 1e-3 / 989.4e12)
    assert ledger.roofline.hfu is None and "data sheet, not measured" in ledger.roofline.ceiling
    told = {a.account: a.ns for a in ledger.accounts}
    assert told["compute"] == pytest.approx(product.floor_ns) and told["bandwidth"] == pytest.approx(relu.floor_ns)
    assert told["inefficiency"] == pytest.approx(300 * US - product.floor_ns - relu.floor_ns)
    assert "uncounted" not in told and sum(told.values()) == pytest.approx(ledger.wall)


def test_a_wait_inside_another_one_is_waited_once(tmp_path: Path) -> None:
    """A loader that reads from a loader: both annotate their waits."""
    timeline = Timeline()
    for name, at, us in (("_MultiProcessingDataLoaderIter", 100, 400), ("_SingleProcessDataLoaderIter", 150, 300)):
        for step in range(2):
            timeline._add("user_annotation", f"enumerate(DataLoader)#{name}.__next__", 1000 * step + at, us)
    timeline.op("aten::mm", 600, [[1024] * 2] * 2, "float", "ampere_sgemm_128x64_nn", 200)
    assert timeline.ledger(tmp_path).step.waits == (400 * US, 400 * US)


def test_fp32_products_on_matrix_units_are_held_against_tf32(tmp_path: Path) -> None:
    rates = {}
    for kernel in ("ampere_sgemm_128x64_nn", "sm80_xmma_gemm_f32f32_tf32f32_f32"):
        timeline = Timeline()
        timeline.op("aten::mm", 100, [[1024, 1024], [1024, 1024]], "float", kernel, 400)
        (row,) = timeline.ledger(tmp_path).device.work.ops
        rates[row.dtype] = row.flops / row.floor_ns * 1e9
    assert rates == {"fp32": pytest.approx(67e12), "tf32": pytest.approx(494.7e12)}


@pytest.mark.parametrize("at", [-500, 2500])
def test_kernels_before_and_behind_the_steps_are_not_theirs(at: int, tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.op("aten::mm", 100, [[1024] * 2] * 2, "float", "ampere_sgemm_128x64_nn", 200)
    timeline._add("kernel", "ampere_sgemm_128x64_nn", at, 60, tid=7, device=0, stream=7)
    device = timeline.ledger(tmp_path).device
    assert device.work.kernel_ns == device.work.counted_ns == device.busy_ns == 200 * US


@pytest.mark.parametrize("kernels", [("tf32f32", "f32f32"), ("f32f32", "tf32f32")])
def test_tf32_is_allowed_to_convolutions_and_to_products_apart(kernels: tuple[str, str], tmp_path: Path) -> None:
    """torch allows it to convolutions by default, to products not: an H100's ResNet had its convolutions "at peak"."""
    timeline = Timeline()
    timeline.op("aten::mm", 100, [[1024] * 2] * 2, "float", f"sm80_xmma_gemm_f32f32_{kernels[0]}_f32", 100)
    shapes = [[64, 256, 14, 14], [1024, 256, 1, 1], [], [], [], [], [], [], []]
    concrete = ["", "", "[0, 0]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"]
    kernel = f"sm80_xmma_fprop_implicit_gemm_f32f32_{kernels[1]}_f32"
    timeline.op("aten::cudnn_convolution", 400, shapes, "float", kernel, 200,
                **{"Concrete Inputs": concrete, "Input type": ["float"] * 2 + ["Scalar"] * 7})  # fmt: skip
    work = timeline.ledger(tmp_path).device.work
    formats = {row.name.removeprefix("aten::"): row.dtype for row in work.ops}
    both = [{"tf32f32": "tf32", "f32f32": "fp32"}[kernel] for kernel in kernels]
    assert formats == dict(zip(("mm", "cudnn_convolution"), both, strict=True))
    assert {row.name: row.dtype for row in work.by_shape} == {row.name: row.dtype for row in work.ops}
    for row in work.ops:
        rate = {"tf32": 494.7e12, "fp32": 67e12}[row.dtype]
        assert row.floor_ns == pytest.approx(max(row.flops / rate, row.bytes / 3350e9) * 1e9)


def test_a_whole_family_runs_in_tf32_and_other_formats_say_nothing_of_it(tmp_path: Path) -> None:
    """A kernel's name need not tell: cuBLAS has products of TF32 that are called after no unit."""
    for first, wanted in (("float", {"tf32"}), ("c10::BFloat16", {"bf16", "fp32"})):
        timeline = Timeline()
        timeline.op("aten::mm", 100, [[1024] * 2] * 2, first, "sm80_xmma_gemm_f32f32_tf32f32_f32", 100)
        timeline.op("aten::addmm", 400, [[1024]] + [[1024] * 2] * 2, "float", "splitKreduce_kernel", 100)
        assert {row.dtype for row in timeline.ledger(tmp_path).device.work.ops} == wanted


def test_an_ops_work_is_counted_once_whoever_launches_for_it(tmp_path: Path) -> None:
    """Flash attention is an op inside the op that has the formula; its copies belong to it."""
    timeline, shapes = Timeline(), [[8, 16, 1024, 64]] * 3
    timeline.op("aten::_scaled_dot_product_flash_attention", 100, shapes, "c10::BFloat16", "flash_fwd_kernel", 300,
                inside="aten::_flash_attention_forward")  # fmt: skip
    (row,) = timeline.ledger(tmp_path).device.work.ops
    assert row.name == "aten::_scaled_dot_product_flash_attention" and row.ns == 300 * US
    assert row.flops == pytest.approx(4.0 * 8 * 16 * 1024 * 1024 * 64, rel=0.05)


def test_work_that_no_kernel_did_has_no_time_to_be_held_against(tmp_path: Path) -> None:
    """Of copies some are the driver's own: counted with the others' kernels they made 2 TB/s on a V100."""
    timeline, shapes = Timeline(), [[4096, 4096]] * 2
    timeline.op("aten::copy_", 100, shapes, "float", "vectorized_elementwise_kernel", 100)
    timeline.op("aten::copy_", 400, shapes, "float", "Memcpy DtoD (Device -> Device)", 100)
    for event in timeline.events:
        event["cat"] = "gpu_memcpy" if event["name"].startswith("Memcpy") else event["cat"]
    (row,) = timeline.ledger(tmp_path).device.work.ops
    assert row.ns == 100 * US and row.bytes == 2 * 4096.0**2 * 4
    assert row.floor_ns == pytest.approx(row.bytes / 3350e9 * 1e9)


def test_what_is_not_modelled_and_what_has_no_launch_stays_uncounted(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.op("aten::relu", 100, [[4096, 4096]], "float", "vectorized_elementwise_kernel", 100)
    timeline.op("mylib::mystery", 300, [[4096, 4096]], "float", "mystery", 50)
    for event in timeline.events:
        if event["name"] == "cudaLaunchKernel" and event["args"]["correlation"] == 1:
            event["args"]["correlation"] = 99  # the first relu's launch was lost
    ledger = timeline.ledger(tmp_path)
    work, told = ledger.device.work, {a.account: a.ns for a in ledger.accounts}
    assert (work.kernel_ns, work.counted_ns) == (150 * US, 50 * US)
    assert told["uncounted"] == pytest.approx(100 * US)


def test_no_shapes_or_an_unknown_device_give_no_work(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.op("aten::relu", 100, [], "float", "vectorized_elementwise_kernel", 100)
    timeline.op("aten::fill_", 300, [], "float", "vectorized_elementwise_kernel", 100)
    assert timeline.ledger(tmp_path).device.work is None
    timeline = Timeline("Some GPU of tomorrow")
    timeline.op("aten::relu", 100, [[4096, 4096]], "float", "vectorized_elementwise_kernel", 100)
    ledger = timeline.ledger(tmp_path)
    assert ledger.device.work is None and [op.ns for op in ledger.device_ops] == [100 * US]


def test_what_backward_computes_again_is_in_hfu_and_not_in_mfu(tmp_path: Path) -> None:
    timeline, shapes = Timeline(), [[4096, 4096], [4096, 4096]]
    timeline.op("aten::mm", 100, shapes, "c10::BFloat16", "nvjet", 150, **{"Sequence number": 1, "Fwd thread id": 0})
    node = {"Sequence number": 1, "Fwd thread id": 1}
    for step in range(2):
        timeline._add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 1000 * step + 300, 500, **node)
    timeline.op("aten::mm", 320, shapes, "c10::BFloat16", "nvjet", 150, **{"Sequence number": 2, "Fwd thread id": 0})
    timeline.op("aten::mm", 500, shapes, "c10::BFloat16", "nvjet", 150)
    roof = timeline.ledger(tmp_path).roofline
    flops = 2 * 4096.0**3
    assert roof.flops == 3 * flops
    assert roof.mfu == pytest.approx(2 * flops / 1e-3 / 989.4e12) and roof.hfu == pytest.approx(1.5 * roof.mfu)


def test_a_measured_ceiling_of_that_device_goes_before_its_data_sheet() -> None:
    ceilings = DeviceCeilings(H100, 80 << 30, {"bf16": measured(700e12)}, measured(2.9e12, "B/s"), measured(5000, "ns"),
                              measured(5e10, "B/s"), measured(1e10, "B/s"))  # fmt: skip
    import msgspec

    here = msgspec.structs.replace(machine(), device=ceilings)
    there, elsewhere = of_device(H100, here), of_device("NVIDIA A100-SXM4-40GB", here)
    assert there is not None and elsewhere is not None
    assert there.flop_rate("bf16", 1) == 700e12 and there.byte_rate(1e9, 1) == 2.9e12
    assert there.flop_rate("fp8", 1) == 1978.9e12  # no gauge measures it
    assert there.fingerprint == "measured there" and elsewhere.flop_rate("bf16", 1) == 312e12
    assert of_device("Some GPU of tomorrow", here) is None


def test_a_rate_has_its_own_share_where_calls_are_bound_by_different_things(tmp_path: Path) -> None:
    timeline, dtype = Timeline(), "c10::BFloat16"
    timeline.op("aten::mm", 100, [[4096, 4096], [4096, 4096]], dtype, "nvjet", 200)
    timeline.op(
        "aten::mm", 400, [[1, 8192], [8192, 8192]], dtype, "gemv", 60
    )  # its floor is that of the weight's bytes
    (op,) = timeline.ledger(tmp_path).device.work.ops
    flops = 2 * 4096.0**3 + 2 * 8192.0**2
    assert op.bound == "compute" and op.ns == 260 * US
    assert op.rate == pytest.approx(flops / 260e-6) and op.reached == pytest.approx(flops / 260e-6 / 989.4e12)
    assert op.floor_ns / op.ns > op.reached + 0.1


def test_no_rate_is_believed_above_its_ceiling_though_each_floor_ends_at_its_time(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.op("aten::relu", 100, [[512, 512]], "float", "vectorized_elementwise_kernel", 0.1)  # from a cache
    timeline.op("aten::relu", 400, [[8, 8]], "float", "vectorized_elementwise_kernel", 0.3)
    (op,) = timeline.ledger(tmp_path).device.work.ops
    assert op.floor_ns < op.ns and op.rate > op.ceiling and not op.believed


@pytest.mark.parametrize(
    ("inputs", "dtype", "peak"),
    [
        ("c10::Float8_e4m3fn", "fp8", 1978.9e12),
        ("c10::Float8_e5m2", "fp8", 1978.9e12),
        ("signed char", "int8", 1978.9e12),
        ("c10::Half", "fp16", 989.4e12),
        ("double", "fp64", 67e12),
    ],
)
def test_a_product_has_the_ceiling_of_its_dtype(tmp_path: Path, inputs: str, dtype: str, peak: float) -> None:
    timeline = Timeline()
    name = "aten::_scaled_mm" if dtype == "fp8" else "aten::_int_mm" if dtype == "int8" else "aten::mm"
    timeline.op(name, 100, [[2048, 2048], [2048, 2048]], inputs, "nvjet", 400)
    (op,) = timeline.ledger(tmp_path).device.work.ops
    assert (op.dtype, op.ceiling, op.bound) == (dtype, peak, "compute")
    assert op.floor_ns == pytest.approx(1e9 * 2 * 2048.0**3 / peak)


def test_integers_are_not_called_fp32(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.op("aten::add", 100, [[4096, 4096], [4096, 4096]], "long int", "vectorized_elementwise_kernel", 300)
    timeline.op("aten::bitwise_not", 500, [[4096, 4096]], "bool", "vectorized_elementwise_kernel", 100)
    ledger = timeline.ledger(tmp_path)
    assert [op.dtype for op in ledger.device.work.ops] == ["int64", "bool"]


@pytest.mark.parametrize("name", ["h100_bert_small", "h100_timesformer", "mi300_vit_falconsai", "mi300_qwen_0.5b"])
def test_real_traces_stay_below_their_data_sheets(name: str) -> None:
    file = TRACES / "tracelens" / f"{name}.json.gz"
    if not file.exists():
        pytest.skip("the shared traces are not here")
    ledger = build_ledger(Profiled(of_trace(read(Source(str(file))))), UNKNOWN)
    work = ledger.device.work
    assert work.counted_ns > 0.65 * work.kernel_ns
    large = [op for op in work.ops if op.ns / op.calls > 20 * US]
    for op in large:  # no op beats the sheet: work is not counted twice, nor time lost
        assert op.flops / op.ns * 1e9 <= 1.02 * of_device(ledger.device.name, UNKNOWN).flop_rate(op.dtype, 1)
        assert op.bytes / op.ns * 1e9 <= 1.1 * of_device(ledger.device.name, UNKNOWN).byte_rate(op.bytes, 1)
    accounts = {a.account: a.ns for a in device_accounts(ledger.device, ledger.wall)}
    assert sum(accounts.values()) == pytest.approx(ledger.wall)


def test_what_is_not_counted_has_names(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.op("aten::relu", 100, [[4096, 4096]], "float", "vectorized_elementwise_kernel", 100)
    timeline.op("mylib::mystery", 300, [[4096, 4096]], "float", "mystery", 50)
    roof = timeline.ledger(tmp_path).roofline
    assert roof.not_counted == (("mylib::mystery", pytest.approx(0.05)),)
    assert roof.not_counted_share == pytest.approx(0.05)


def test_where_most_of_the_kernels_time_is_not_counted_there_is_no_mfu(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.op("aten::relu", 100, [[4096, 4096]], "float", "vectorized_elementwise_kernel", 100)
    timeline.op("mylib::mystery", 300, [[4096, 4096]], "float", "mystery", 150)
    roof = timeline.ledger(tmp_path).roofline
    assert roof.mfu is roof.hfu is roof.speed_of_light is None and roof.flops > 0


def test_what_sums_of_floats_leave_is_no_account() -> None:
    """A rest of 3e-8 ns was told as "0.00 ns" with a bar."""
    from gobrrr.ledger.model.accounts import accounts
    from gobrrr.ledger.model.ledger import HostGroup

    for rest, told in ((3e-8, 0.0), (0.4, 0.0), (-0.4, 0.0), (7.0, 7.0)):
        found = {a.account: a.ns for a in accounts([], [HostGroup((), 100.0)], 50.0, 150.0 + rest, 0.0)}
        assert found["unattributed"] == pytest.approx(told)
