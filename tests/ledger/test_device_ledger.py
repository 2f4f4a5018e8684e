"""The device side of the ledger, against timelines counted by hand and the published figures of a real V100 run."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gobrrr.ledger.device.device_side import device_ledger, exposed, kernel_class
from gobrrr.ledger.device.kernel_names import TENSOR_CORE, VECTOR_UNITS, readable
from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.places import NOWHERE, Place, Places
from gobrrr.ledger.model.accounts import device_accounts
from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Account
from gobrrr.ledger.steps.scaling import at_plain_step, factors
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.pipeline.traces import diagnosed
from gobrrr.recording.model.call_tree import nest
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.trace import CPU_OP, MEMCPY, Trace
from gobrrr.recording.trace_files.kineto import read_trace
from gobrrr.recording.trace_files.limits import DEFAULT
from gobrrr.recording.trace_files.sources import Source
from gobrrr.rules.validity.links import device_work_without_a_launch
from gobrrr.rules.validity.measurement import device_stalled
from gobrrr.spans import as_spans, overlap, total, union
from tests.support.handmade import Case, machine

TRACES = Path(os.environ.get("GOBRRR_TRACES", "../shared/traces"))
LINE = Place((Span("train.py", 7, "train"),))


def op(name: str, ts: float, dur: float, cat: str = "cpu_op") -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {}}


def call(name: str, ts: float, dur: float, correlation: int = 0) -> dict[str, object]:
    return op(name, ts, dur, "cuda_runtime") | {"args": {"correlation": correlation}}


def kernel(name: str, ts: float, dur: float, stream: int = 7, cat: str = "kernel", **args: object) -> dict[str, object]:
    event = {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur}
    return event | {"args": {"device": 0, "stream": stream, "correlation": 1, **args}}


def read(folder: Path, *events: dict[str, object]) -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    return read_trace(path)


def host(trace: Trace, begin_us: int, end_us: int) -> HostOps:
    ops, tree = trace.ops, nest(trace.ops.start, trace.ops.dur)
    everywhere = np.ones(len(ops), bool)
    return HostOps(
        ops, trace.names, tree.parent, tree.self_time, everywhere, ops.kind == CPU_OP, ("other",) * len(ops),
        np.zeros(len(ops), np.int32), np.array([[begin_us * 1000, end_us * 1000]]),
    )  # fmt: skip


def places(begin_us: int = 0) -> Places:
    return Places(np.array([begin_us * 1000]), np.array([1], np.int32), (NOWHERE, LINE))


def test_busy_is_the_union_over_streams_and_idle_the_rest_of_the_window(tmp_path: Path) -> None:
    trace = read(tmp_path, op("aten::mm", 0, 5), kernel("gemm", 10, 20), kernel("relu", 20, 20, stream=8))
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "V100") or (None, None)
    assert found is not None
    assert (found.busy_ns, found.idle_ns) == (30_000, 70_000)
    assert found.span_busy_share == 1.0  # first to last device event: what other tools print


def test_what_the_host_launched_is_the_steps_though_it_runs_after_them(tmp_path: Path) -> None:
    """A host that runs ahead leaves the window long before the device is done: of an H200 that was never idle a third
    of the work was missing. Where nobody waited for the device, as in files of others, what ran in the steps counts."""
    launches = [call("cudaLaunchKernel", 5 + i, 1, i) for i in range(4)]
    kernels = [kernel("gemm", 10 + 40 * i, 40, correlation=i) for i in range(4)]
    before = kernel("gemm", 0, 10, correlation=99)
    late, earlier = call("cudaLaunchKernel", 60, 1, 99), call("cudaLaunchKernel", 1, 1, 98)
    older = kernel("gemm", 170, 30, correlation=98)
    trace = read(tmp_path, op("aten::mm", 0, 9), earlier, *launches, late, before, *kernels, older)
    drained = replace(host(trace, 2, 50), drained=True)
    found, _ = device_ledger(trace, drained, places(), 1, "H200") or (None, None)
    assert found is not None and (found.busy_ns, found.idle_ns) == (160_000, 8_000)
    found, _ = device_ledger(trace, host(trace, 2, 50), places(), 1, "H200") or (None, None)
    assert found is not None and found.busy_ns == 40_000


def test_a_copy_within_the_device_transfers_nothing(tmp_path: Path) -> None:
    inside = kernel("Memcpy DtoD (Device -> Device)", 10, 30, cat="gpu_memcpy")
    there = kernel("Memcpy HtoD (Pageable -> Device)", 50, 5, cat="gpu_memcpy")
    trace = read(tmp_path, op("aten::copy_", 0, 5), inside, there)
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "H200") or (None, None)
    assert found is not None and (found.busy_ns, found.exposed_copy_ns) == (35_000, 5_000)


def test_a_synchronisation_costs_the_idle_it_causes_not_its_own_length(tmp_path: Path) -> None:
    trace = read(
        tmp_path, op("aten::mm", 0, 5), kernel("gemm", 5, 50),
        call("cudaStreamSynchronize", 6, 52), kernel("gemm", 70, 30),
    )  # fmt: skip
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "V100") or (None, None)
    assert found is not None
    ((name, calls, caused, where),) = found.syncs
    assert (name, calls) == ("cudaStreamSynchronize", 1)
    assert caused == 15_000  # 55 to 58 inside the call, 58 to 70 from its return to the next kernel; not 52
    assert where == LINE.where


@pytest.mark.parametrize(
    ("memory", "returns", "caused"), [("Pageable", 62, 12_000), ("Pageable", 58, 0), ("Pinned", 62, 0)]
)
def test_a_copy_from_pageable_memory_that_its_call_waits_for_is_a_synchronisation(
    memory: str, returns: int, caused: int, tmp_path: Path
) -> None:
    """The host stands in cudaMemcpyAsync from 6 on, for a kernel until 55 and a copy until 60; the next kernel comes at
    72: 2 us of idle inside the call and 10 after it. Where the call is back before the copy is done, it only asked."""
    name = f"Memcpy DtoH (Device -> {memory})"
    trace = read(
        tmp_path, op("aten::copy_", 0, 64), kernel("gemm", 5, 50), call("cudaMemcpyAsync", 6, returns - 6, 2),
        kernel(name, 55, 5, cat="gpu_memcpy", correlation=2), kernel("gemm", 72, 28),
    )  # fmt: skip
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "V100") or (None, None)
    assert found is not None
    assert dict(found.idle_by_cause)["sync"] == caused
    assert [sync[0] for sync in found.syncs] == ([name] if caused else [])
    assert found.awaited_ns == (49_000 if caused else 0), "the call's 56 us less the copy's own 5 and the 2 of idle"


def test_idle_is_owned_once_by_data_sync_launch_and_host(tmp_path: Path) -> None:
    trace = read(
        tmp_path, op("enumerate(DataLoader)#X.__next__", 0, 40, "user_annotation"), op("aten::mm", 45, 15),
        kernel("gemm", 60, 20), call("cudaDeviceSynchronize", 70, 15), kernel("gemm", 95, 5),
    )  # fmt: skip
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "V100") or (None, None)
    assert found is not None
    causes = dict(found.idle_by_cause)
    assert causes == {
        "stalled": 0, "data_wait": 40_000, "sync": 15_000, "communication": 0, "allocator": 0, "launch": 15_000,
        "host": 5_000,
    }  # fmt: skip
    assert sum(causes.values()) == found.idle_ns


def test_idle_in_a_wait_for_a_collective_that_a_thread_carries_is_communication(tmp_path: Path) -> None:
    """Gloo's gradients of a device: an H200 of two ranks was called launch-bound while 11 of 18 ms were that."""
    trace = read(
        tmp_path, op("c10d::allreduce_", 0, 10), kernel("gemm", 10, 20), op("gloo:all_reduce", 10, 70),
        op("aten::add_", 80, 10), kernel("add", 90, 10),
    )  # fmt: skip
    found, kept = device_ledger(trace, host(trace, 0, 100), places(), 1, "H200") or (None, None)
    assert found is not None and kept is not None
    causes = dict(found.idle_by_cause)
    assert (causes["communication"], causes["launch"], causes["host"]) == (50_000, 20_000, 0)
    told = {a.account: a.ns for a in device_accounts(found, 100_000)}
    assert (told["communication"], told["dispatch"]) == (50_000, 20_000)
    assert overlap(np.array([[10_000, 80_000]]), kept).tolist() == [50_000]  # the op of the wait has it, at its line


def test_a_synchronisation_of_the_thread_that_carries_a_collective_is_part_of_that_wait(tmp_path: Path) -> None:
    """Gloo waits for the gradients on its own stream before it sends them: the host never called it."""
    its_own = call("cudaStreamSynchronize", 12, 18) | {"tid": 2}
    trace = read(
        tmp_path, kernel("gemm", 0, 30), op("gloo:all_reduce", 10, 70), its_own, op("aten::add_", 80, 10),
        kernel("add", 90, 10),
    )  # fmt: skip
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "H200") or (None, None)
    assert found is not None and [idle for _, _, idle, _ in found.syncs] == [0]
    assert dict(found.idle_by_cause)["communication"] == 50_000 and dict(found.idle_by_cause)["sync"] == 0


def test_only_the_part_of_a_copy_that_nothing_covers_is_exposed(tmp_path: Path) -> None:
    name = "Memcpy HtoD (Pageable -> Device)"
    trace = read(
        tmp_path, op("aten::copy_", 0, 1), kernel(name, 10, 20, 9, "gpu_memcpy", bytes=4096), kernel("gemm", 20, 40)
    )
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 2, "V100") or (None, None)
    assert found is not None
    assert found.exposed_copy_ns == 5_000  # 10 of 20 us in two steps
    assert found.copies == ((name, 0, 2048.0, 10_000.0),)
    assert exposed(trace.kernels, trace.kernels.kind == MEMCPY) == 10_000


def test_short_kernels_and_tensor_cores_are_told_by_length_and_name(tmp_path: Path) -> None:
    trace = read(
        tmp_path, op("aten::mm", 0, 1),
        kernel("volta_sgemm_128x64_nn", 10, 20), kernel("vectorized_elementwise", 40, 5),
        kernel("ampere_bf16_s16816gemm_bf16_128x64", 50, 30),
    )  # fmt: skip
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "A100", "8.0") or (None, None)
    assert found is not None
    assert found.short_kernel_share == pytest.approx(1 / 3)
    assert (found.tensor_core_eligible_ns, found.tensor_core_ns) == (20_000, 30_000)


@pytest.mark.parametrize(("us", "short"), [(9.9, 1.0), (10.0, 0.0)])
def test_a_kernel_below_ten_microseconds_is_short(us: float, short: float, tmp_path: Path) -> None:
    trace = read(tmp_path, op("aten::mm", 0, 1), kernel("volta_sgemm_128x64_nn", 10, us))
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "V100") or (None, None)
    assert found is not None and found.short_kernel_share == short


@pytest.mark.parametrize(("name", "us", "starts"), [
    ("cudaStreamCreate", 100_000, 100_000), ("cudaStreamCreate", 99_999, 0), ("cudaDeviceSynchronize", 100_000, 0),
])  # fmt: skip
def test_calls_of_a_tenth_of_a_second_are_the_start_up_of_a_device(
    name: str, us: int, starts: int, tmp_path: Path
) -> None:
    """Contexts, modules and streams take so long once; a wait for the device may take as long as its work."""
    trace = read(tmp_path, op("aten::mm", 0, 5), call(name, 10, us), kernel("gemm", 200_000, 50))
    found, _ = device_ledger(trace, host(trace, 0, 300_000), places(), 1, "V100") or (None, None)
    assert found is not None and found.start_up_ns == starts * 1000


def test_kernels_too_small_for_the_device_are_told_where_the_profiler_says_so(tmp_path: Path) -> None:
    known = [kernel("gemm", 10, 20, **{"blocks per SM": 0.5}), kernel("gemm", 30, 60, **{"blocks per SM": 4.0})]
    for kernels, share in ((known, 0.25), ([*known, kernel("gemm", 90, 5)], 0.25), ([kernel("gemm", 90, 5)], None)):
        trace = read(tmp_path, op("aten::mm", 0, 5), *kernels)
        found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "V100") or (None, None)
        assert found is not None and found.underfilled_share == share


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("volta_scudnn_128x128_stridedB_splitK_small_nn_v1", "convolution"),
        ("turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "convolution"),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>", "convolution"),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw", "convolution"),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x16", "convolution"),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", "convolution"),
        ("MIOpenBatchNormFwdTrainSpatial", "reduction"),
        ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>", "reduction"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>", "reduction"),
        ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePass", "reduction"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>", "reduction"),
        ("void typeConvert<float, __half>(float const*, __half*, int)", "elementwise"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>", "elementwise"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>", "elementwise"),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x8x512_s5_et128x8", "matmul"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", "matmul"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "matmul"),
        ("volta_sgemm_64x64_nt", "matmul"),
        ("void split_embedding_backward_codegen_adagrad_unweighted_kernel_cta_per_row_1<float>", "other"),
        ("attn_fwd", "attention"),
        ("fmhaSm100fKernel_QkvE4m3OBfloat16H128PagedKvCausal", "attention"),
        ("Cijk_Alik_Bljk_HB_MT128x128x32", "matmul"),
        ("void pytorch_flash::flash_fwd_kernel<...>", "attention"),
        ("void at::native::vectorized_elementwise_kernel<4, ...>", "elementwise"),
        ("void at::native::reduce_kernel<512, 1, ...>", "reduction"),
        ("sage_fwd", "attention"),
        (
            "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_",
            "elementwise",
        ),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)", "elementwise"),
        ("void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 2ul>", "other"),
        ("void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int, float const*)", "reduction"),
        ("void at::native::(anonymous namespace)::adaptive_average_pool<float>(float const*, float*)", "reduction"),
        ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float)", "reduction"),
        ("void at::native::(anonymous namespace)::cuComputePartGradGammaBeta<float, float, true>(float)", "reduction"),
        ("void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*, long*>>", "reduction"),
        ("void fft2d_c2r_32x32<float, false, false, 0u, false, false>(float*, float2 const*)", "convolution"),
        ("SubTensorOpWithCastTensor1d", "elementwise"),
        ("void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>>", "other"),
        ("something_new", "other"),
    ],
)
def test_kernel_classes(name: str, label: str) -> None:
    assert kernel_class(name) == label


@pytest.mark.parametrize(
    ("name", "vector", "matrix"),
    [
        ("volta_sgemm_64x64_nt", True, False),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", True, False),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>", True, False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4", True, False),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x256x32_warpgroupsize2x1x1", False, True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>", True, False),
        ("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", False, True),
        ("turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", False, True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>", False, True),
        ("Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT256x128x64_MI16x16x1_SN", False, True),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x8x512_s5_et128x8", False, True),
        ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>", False, False),  # a product with a vector
    ],
)
def test_which_units_a_kernel_uses_by_its_name(name: str, vector: bool, matrix: bool) -> None:
    assert (bool(VECTOR_UNITS.search(name)), bool(TENSOR_CORE.search(name))) == (vector, matrix)


@pytest.mark.skipif(not (TRACES / "hta").is_dir(), reason="needs the real traces: set GOBRRR_TRACES")
def test_fp32_on_a_v100_leaves_its_tensor_cores_idle_and_the_file_says_that_it_has_some() -> None:
    report = diagnosed(Source(str(TRACES / "hta" / "v100_ddp_ns_resolution.json.gz")), UNKNOWN, DEFAULT)
    found = next(finding for finding in report.findings if finding.code == "BRR110")
    assert found.evidence["eligible_time"].value == pytest.approx(58e6, rel=0.05) and "float16" in found.advice
    elsewhere = diagnosed(Source(str(TRACES / "tracelens" / "mi300_qwen_0.5b.json.gz")), UNKNOWN, DEFAULT)
    assert "BRR110" not in {finding.code for finding in elsewhere.findings}


@pytest.mark.parametrize(
    ("returned", "stalled"),
    [
        (25, 100_000 - 25_000 - 20_000),  # launched before the gap began at 15, or soon after
        (10, 100_000 - 15_000 - 20_000),
        (90, 0),  # launched late: what came before is the host's
    ],
)
def test_idle_with_the_next_work_launched_is_not_the_hosts(returned: int, stalled: int, tmp_path: Path) -> None:
    trace = read(
        tmp_path, op("aten::mm", 0, 3), kernel("gemm", 5, 10),
        call("cudaLaunchKernel", returned - 4, 4, correlation=2), kernel("relu", 100, 10, correlation=2),
        kernel("relu", 100, 5, stream=8, correlation=99),
    )  # fmt: skip
    found, idle = device_ledger(trace, host(trace, 0, 110), places(), 1, "V100") or (None, None)
    assert found is not None and idle is not None
    assert found.starved_ns == 90_000 - stalled
    assert sum(ns for _, ns in found.idle_by_cause) == found.idle_ns == 90_000
    assert total(idle) == found.starved_ns
    told = {a.account: a.ns for a in device_accounts(found, 110_000)}
    assert told.get("stalled", 0.0) == stalled and sum(told.values()) == pytest.approx(110_000)


@pytest.mark.parametrize(("ms", "severity"), [(9, None), (15, "note"), (45, "critical")])
def test_a_device_that_stands_still_with_work_queued_allows_no_verdict(ms: int, severity: str | None) -> None:
    accounts = {"host": 30.0, "compute": 70.0 - ms, "stalled": float(ms)}
    device = DeviceLedger("gpu", (70.0 - ms) * 1e6, (30.0 + ms) * 1e6, 0.5)
    case = Case(extra={"device": device}, accounts=tuple(Account(n, v * 1e6, v / 100) for n, v in accounts.items()))
    assert [f.severity for f in device_stalled(case.ledger, machine())] == ([severity] if severity else [])


def test_no_device_events_no_device_ledger(tmp_path: Path) -> None:
    trace = read(tmp_path, op("aten::mm", 0, 5))
    assert device_ledger(trace, host(trace, 0, 10), places(), 1, "V100") is None


def test_accounts_sum_to_the_plain_step_when_the_profiler_lengthened_the_idle(tmp_path: Path) -> None:
    trace = read(tmp_path, op("aten::mm", 0, 30), kernel("gemm", 40, 20), call("cudaStreamSynchronize", 45, 20))
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "V100") or (None, None)
    assert found is not None
    found = at_plain_step(found, *factors(found, 60_000, alike=False))
    told = {a.account: a.ns for a in device_accounts(found, 60_000)}
    assert told["uncounted"] == 20_000
    assert sum(told.values()) == pytest.approx(60_000)
    # 5 inside the call, and 15 after it, for which the call kept the host: of 80 captured, and 40 are left.
    assert told["sync"] == pytest.approx(20_000 * 40_000 / 80_000)


@pytest.mark.parametrize(
    ("plain", "alike", "busy", "idle"),
    [
        (60.0, False, 20.0, 40.0),  # the profiler lengthened what is not the device's
        (10.0, False, 10.0, 0.0),  # it works longer than the plain step lasts
        (150.0, False, 20.0, 130.0),
        (50.0, True, 10.0, 40.0),  # a trace's own steps: every share stays
        (200.0, True, 40.0, 160.0),
    ],
)
def test_work_and_idle_of_the_plain_step(plain: float, alike: bool, busy: float, idle: float) -> None:
    recorded = DeviceLedger("gpu", 20.0, 80.0, 0.5, idle_by_cause=(("sync", 30.0), ("host", 50.0)), exposed_copy_ns=5.0)
    found = at_plain_step(recorded, *factors(recorded, plain, alike))
    assert (found.busy_ns, found.idle_ns) == (pytest.approx(busy), pytest.approx(idle))
    assert sum(ns for _, ns in found.idle_by_cause) == pytest.approx(idle)
    assert found.exposed_copy_ns == pytest.approx(busy / 4)


def test_where_it_never_idled_the_rest_of_a_longer_step_is_nobodys() -> None:
    recorded = DeviceLedger("gpu", 20.0, 0.0, 1.0)
    found = at_plain_step(recorded, *factors(recorded, 30.0, alike=False))
    assert (found.busy_ns, found.idle_ns) == (20.0, 0.0)
    assert {a.account: a.ns for a in device_accounts(found, 30.0)}["unattributed"] == 10.0


@pytest.mark.skipif(not (TRACES / "kineto").is_dir(), reason="needs the real traces: set GOBRRR_TRACES")
def test_the_v100_run_is_busy_as_published() -> None:
    """torch-tb-profiler prints 55.51 % utilisation of the mean step of 177.592 ms, kernels only."""
    trace = read_trace(TRACES / "kineto" / "v100_resnet50_workers0.json.gz")
    kernels = trace.kernels.take(trace.kernels.kind != MEMCPY)
    shares = []
    for begin, end in zip(trace.steps.start, trace.steps.start + trace.steps.dur, strict=True):
        starts, ends = union(as_spans(kernels.start, kernels.dur)).T
        shares.append(int((np.minimum(ends, end) - np.maximum(starts, begin)).clip(0).sum()))
    mean_step = float(trace.steps.dur.mean())
    assert 100 * float(np.mean(shares)) / mean_step == pytest.approx(55.51, abs=0.6)  # their step ends with its kernels


def test_a_call_that_found_nothing_to_wait_for_owns_no_idle_after_it(tmp_path: Path) -> None:
    """A synchronisation before 60 us of preprocessing is not what the device waits for (TimeSformer, 217 ms)."""
    trace = read(tmp_path, call("cudaDeviceSynchronize", 1, 2), op("aten::mm", 60, 5), kernel("gemm", 65, 30))
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "H100") or (None, None)
    assert found is not None
    causes = {cause: ns for cause, ns in found.idle_by_cause if ns}
    assert causes == {"sync": 2000, "launch": 5000, "host": 63_000}


def test_events_without_a_launch_count_in_busy_time_and_not_in_the_span(tmp_path: Path) -> None:
    trace = read(
        tmp_path, call("cudaLaunchKernel", 0, 2, 1), kernel("gemm", 10, 20), kernel("gemm", 80, 10, correlation=99),
    )  # fmt: skip
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "MI300X") or (None, None)
    assert found is not None
    assert (found.busy_ns, found.span_busy_share, found.unlinked_share) == (30_000, 1.0, 0.5)


@pytest.mark.parametrize(("shift", "ahead", "level"), [(0, 0, None), (-10, 4000, "note"), (-40, 34_000, "critical")])
def test_kernels_before_their_launch_are_a_clock_that_differs(
    shift: int, ahead: int, level: str | None, tmp_path: Path
) -> None:
    """The host launches at 50 and 90 us, the device is 6 us late, its clock `shift` us off: of 100 us 5 are much."""
    trace = read(
        tmp_path, call("cudaLaunchKernel", 50, 2, 1), kernel("gemm", 56 + shift, 20),
        call("cudaLaunchKernel", 90, 2, 2), kernel("gemm", 96 + shift, 4, correlation=2),
    )  # fmt: skip
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "H100") or (None, None)
    assert found is not None and found.ahead_ns == ahead
    told = device_work_without_a_launch(Case(ms=0.1, extra={"device": found}).ledger, machine())
    assert [finding.severity for finding in told] == ([level] if level else [])


def test_the_ops_of_two_processes_in_one_file_are_not_told_apart(tmp_path: Path) -> None:
    """Rank files that were joined: rank 1 sleeps, and rank 0 waits."""
    alone = [op("aten::mm", 0, 50), op("aten::mm", 60, 40)]
    joined = [*alone, *(event | {"pid": 2} for event in alone)]
    for events, doubts in ((alone, 0), (joined, 1)):
        read(tmp_path, *events)
        report = diagnosed(Source(str(tmp_path / "trace.json")), UNKNOWN, DEFAULT)
        assert [finding.severity for finding in report.findings if finding.code == "BRR909"] == ["critical"] * doubts


def test_what_a_graph_launched_is_counted(tmp_path: Path) -> None:
    trace = read(
        tmp_path, call("cudaGraphLaunch", 0, 2, 5), kernel("gemm", 10, 30, correlation=5),
        call("cudaLaunchKernel", 3, 2, 6), kernel("relu", 40, 10, correlation=6),
    )  # fmt: skip
    found, _ = device_ledger(trace, host(trace, 0, 100), places(), 1, "H100") or (None, None)
    assert found is not None
    assert found.replayed_share == 0.75


@pytest.mark.parametrize(("kernel", "read"), [
    ("void cudnn::bn_bw_1C11_kernel_new<float, float2, 128>(float, float, cudnnTensorStruct, float const*)",
     "cudnn::bn_bw_1C11_kernel_new<float, float2, 128>"),
    ("void at::native::(anonymous namespace)::softmax_warp_forward<float>(float*, float const*, int)",
     "softmax_warp_forward<float>"),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm>(cutlass_80_simt_sgemm::Params)",
     "cutlass::Kernel2<cutlass_80_simt_sgemm>"),
    ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(int)",
     "std::enable_if<!(false), void>::type internal::gemvx::kernel<int>"),
    ("nvjet_tst_128x256", "nvjet_tst_128x256"), ("", ""), ("void ", "void "),
])  # fmt: skip
def test_a_kernels_name_is_told_without_its_parameters(kernel: str, read: str) -> None:
    assert readable(kernel) == read


def test_endless_names_are_read_once() -> None:
    """Where each beginning were read to the end, this would not end."""
    assert readable("a(" * 500_000 + "\n") == "a"
    assert not VECTOR_UNITS.search("winograd" * 100_000) and TENSOR_CORE.search("xmma" * 500_000)
    assert not TENSOR_CORE.search("xmmaf32f32_f32f32_f32" * 20_000)
