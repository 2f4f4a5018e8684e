"""BRR102, BRR109, BRR110 and BRR204: what a GPU's tensor cores want; on a ledger made by hand, as no GPU is at hand."""

from __future__ import annotations

import msgspec
import pytest

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.machine.model.machine import DeviceCeilings
from gobrrr.recording.model.facts import Facts, Settings
from tests.support.handmade import LINE, MS, OTHER_LINE, Case, measured, op, product

KERNELS = (("gemm", 10.0, 60 * MS, "matmul"), ("relu", 5.0, 10 * MS, "elementwise"))


def on_gpu(*ops: object, **fields: object) -> Case:
    given = {"busy_ns": 90 * MS, "idle_ns": 10 * MS, "span_busy_share": 0.9, "kernels": KERNELS, **fields}
    return Case(ops=ops, extra={"device": DeviceLedger("gpu", **given), "device_ops": ops})


def test_a_misaligned_vocabulary_is_told_with_its_size():
    head = product(1024, 768, 50257, dtype="c10::Half", gflops=1000.0)
    (found,) = on_gpu(head).raised("BRR109")
    assert "50257" in found.message and found.where == (LINE,)
    assert found.saving.expected_ns == pytest.approx(0.15 * head.ns * 0.9)  # the device works 90 % of the step
    assert found.saving.ceiling_ns == pytest.approx(0.5 * head.ns)


def test_only_the_misaligned_part_counts():
    even, odd = (product(1024, 768, n, dtype="c10::Half", gflops=2000.0) for n in (50264, 50257))
    (found,) = on_gpu(even, odd).raised("BRR109")
    assert found.saving.expected_ns == pytest.approx(0.15 * odd.ns * 0.9, rel=0.001)
    assert found.evidence["misaligned_share"].value == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize(
    "group",
    [
        product(1024, 768, 50304, dtype="c10::Half"),
        product(1024, 768, 50257),
        product(1024, 768, 2, dtype="c10::Half"),
    ],
    ids=["aligned", "fp32", "a head of two classes"],
)
def test_alignment_is_silent(group):
    assert not on_gpu(group).raised("BRR109")


def test_alignment_is_never_told_on_a_cpu():
    assert not Case(ops=(product(1024, 768, 50257, dtype="c10::Half"),)).raised("BRR109")


def test_idle_tensor_cores_are_told_where_the_device_has_them():
    fields = {"tensor_core_eligible_ns": 60 * MS, "capability": "8.0"}
    (found,) = on_gpu(op("mm", (64, 64), (64, 64)), **fields).raised("BRR110")
    assert found.saving.expected_ns == pytest.approx(0.6 * 60 * 0.5 * 0.9 * MS)
    assert found.remedies == ("bf16_autocast", "matmul_precision"), "float16 must be scaled, and is no faster"
    (volta,) = on_gpu(op("mm", (64, 64), (64, 64)), **{**fields, "capability": "7.0"}).raised("BRR110")
    assert volta.remedies == ("float16_autocast",)
    assert not on_gpu(**{**fields, "capability": "6.1"}).raised("BRR110")
    (waited,) = on_gpu(op("mm", (64, 64), (64, 64)), **fields, awaited_ns=50 * MS).raised("BRR110")
    assert waited.saving.expected_ns == pytest.approx(0.6 * 60 * 0.5 * MS)  # in full: the host waits for longer
    assert waited.saving.low_ns == pytest.approx(found.saving.low_ns)
    (partly,) = on_gpu(op("mm", (64, 64), (64, 64)), **fields, awaited_ns=10 * MS).raised("BRR110")
    assert partly.saving.expected_ns == pytest.approx((10 + 0.9 * (0.6 * 60 * 0.5 - 10)) * MS)
    assert not on_gpu(**{**fields, "capability": ""}).raised("BRR110")


def test_what_kernels_give_back_is_what_the_window_was_shorter_by_without_them():
    fields = {"tensor_core_eligible_ns": 60 * MS, "capability": "8.0"}
    played = ((10 * MS, 9 * MS), (50 * MS, 12 * MS))  # the host needs what is left
    (found,) = on_gpu(op("mm", (64, 64), (64, 64)), **fields, lighter=played).raised("BRR110")
    assert found.saving.expected_ns == pytest.approx((9 + 3 * (18 - 10) / 40) * MS)
    assert found.saving.ceiling_ns <= 12.1 * MS
    (little,) = on_gpu(op("mm", (64, 64), (64, 64)), **{**fields, "tensor_core_eligible_ns": 20 * MS},
                       lighter=((10 * MS, 20 * MS),)).raised("BRR110")  # fmt: skip
    assert little.saving.expected_ns == pytest.approx(0.6 * 20 * 0.5 * MS), "no more than what goes"


H200 = DeviceCeilings(
    "gpu", 1 << 37, {"fp32": measured(50e12), "tf32": measured(400e12), "bf16": measured(700e12)},
    *[measured(1.0)] * 4, capability="9.0",
)  # fmt: skip


def trainer(**fields: object) -> Case:
    """fp32 products of 72 ms in two lines beside fused attention, whose kernels are the tensor cores'."""
    costly = product(8192, 8192, 32768, gflops=44e12 / 1e9 * 2, where=(OTHER_LINE,))
    case = on_gpu(
        costly, product(8192, 8192, 8192, gflops=44e12 / 1e9), op("_efficient_attention_forward", (8, 8), ms=9),
        tensor_core_eligible_ns=72 * MS, tensor_core_ns=9 * MS, capability="9.0", **fields,
    )  # fmt: skip
    case.machine = msgspec.structs.replace(case.machine, device=H200)
    return case


def test_fp32_products_are_told_though_attention_uses_the_tensor_cores():
    (found,) = trainer().raised("BRR110")
    assert "88.9 % of all that could (14.0 times the rate here)" in found.message
    assert found.saving.expected_ns == pytest.approx(0.6 * 72 * (1 - 50 / 700) * 0.9 * MS)
    assert 'set_float32_matmul_precision("high")' in found.advice and "autocast" in found.advice
    assert {"bf16_autocast", "matmul_precision"} <= set(found.remedies)
    assert found.where == (OTHER_LINE,) and found.holds_ns <= 72 * MS


def test_ceilings_of_another_device_are_not_those_of_this_one():
    case = trainer()
    case.machine = msgspec.structs.replace(case.machine, device=msgspec.structs.replace(H200, name="another"))
    (found,) = case.raised("BRR110")
    assert found.saving.expected_ns == pytest.approx(0.6 * 72 * 0.5 * 0.9 * MS) and "measured here" not in found.message


def test_products_that_their_flops_do_not_explain_gain_nothing_by_tensor_cores():
    small = product(64, 64, 64, gflops=10.0, calls=1.0)
    case = on_gpu(msgspec.structs.replace(small, ns=72 * MS), tensor_core_eligible_ns=72 * MS, capability="9.0")
    case.machine = msgspec.structs.replace(case.machine, device=H200)
    assert not case.raised("BRR110")


def test_where_tf32_is_allowed_it_is_not_advised_again_and_where_matrices_are_factorised_nothing_is():
    case = trainer()
    case.facts = Facts(settings=Settings(matmul_precision="high"))
    (allowed,) = case.raised("BRR110")
    assert "set_float32" not in allowed.advice and "matmul_precision" not in allowed.remedies
    case.ops = (*case.ops, op("linalg_cholesky_ex", (64, 64)))
    assert not case.raised("BRR110")


IMAGES = (64, 256, 14, 14)
RESNET = (
    op("cudnn_convolution", IMAGES, (1024, 256, 1, 1), ms=40, where=(OTHER_LINE,), floor_ns=20 * MS),
    op("cudnn_batch_norm", IMAGES, (256,), ms=20, floor_ns=10 * MS),
    op("native_layer_norm", (64, 256), ms=10, floor_ns=8 * MS),
    op("native_layer_norm_backward", (64, 256), ms=5, floor_ns=4 * MS, phase="backward"),
    op("_foreach_add_", (64, 256), ms=10, phase="optimizer"), op("add_", (64,), dtype="long int", ms=1),
)  # fmt: skip


def resnet(**fields: object) -> Case:
    """Convolutions in TF32, as torch has them by default, and norms in fp32 between them."""
    case = on_gpu(*RESNET, **{"tensor_core_ns": 40 * MS, "capability": "9.0", **fields})
    case.machine = msgspec.structs.replace(case.machine, device=H200)
    return case


def test_fp32_tensors_are_told_where_the_tensor_cores_are_used_already():
    (found,) = resnet().raised("BRR102")
    assert found.saving.expected_ns == pytest.approx(0.5 * (20 + 10) * 0.9 * MS), "neither norm of rows nor update"
    assert found.saving.low_ns < found.saving.expected_ns < found.saving.ceiling_ns <= 60 * MS
    assert found.where == (OTHER_LINE,) and 'torch.autocast("cuda"' in found.advice and "400 TFLOP/s" in found.message
    assert found.remedies == ("bf16_autocast",), "TF32 brings no more, and what has TF32 has bfloat16"
    assert resnet(tensor_core_eligible_ns=3 * MS).raised("BRR102")
    for left in (5 * MS, 50 * MS):
        assert not resnet(tensor_core_eligible_ns=left).raised("BRR102"), "that is BRR110's"
    assert not resnet(tensor_core_ns=0.0).raised("BRR102"), "nothing says that they are used"


def test_fp32_tensors_are_not_told_under_autocast_nor_where_bfloat16_is_no_faster():
    case = resnet()
    case.facts = Facts(settings=Settings(autocast="bfloat16"))
    assert not case.raised("BRR102")
    case = resnet()
    slow = msgspec.structs.replace(H200, matmul={**H200.matmul, "bf16": measured(500e12)})
    case.machine = msgspec.structs.replace(case.machine, device=slow)
    assert not case.raised("BRR102")
    case = resnet()
    case.ops = (*case.ops, op("linalg_cholesky_ex", (64, 64)))
    case.extra["device_ops"] = case.ops
    assert not case.raised("BRR102")


def test_what_cudnn_reorders_around_convolutions_is_a_copy_of_layout():
    """4.1 of 42 ms of a ResNet in rows on an H100."""
    names = ("void cudnn::engines_precompiled::nchwToNhwcKernel<float>", "cudnn::nhwcToNchwKernel<float>", "relu")
    kernels = tuple((name, 10.0, ns * MS, "elementwise") for name, ns in zip(names, (8, 4, 50), strict=True))
    (found,) = resnet(kernels=kernels).raised("BRR204")
    assert found.saving.expected_ns == pytest.approx((0.8 * 12 + 0.1 * 40) * 0.9 * MS)
    assert found.where == (OTHER_LINE,) and "12.0 ms of it within convolutions" in found.message
    assert "channels_last" in found.remedies
    assert not resnet().raised("BRR204")
    case, copied = resnet(kernels=kernels), op("copy_", IMAGES, IMAGES, ms=20, parents=("aten::clone",))
    case.ops = (*case.ops, msgspec.structs.replace(copied, strides=(copied.strides[0], (50176, 1, 3584, 256))))
    case.extra["device_ops"] = case.ops
    (both,) = case.raised("BRR204")
    assert both.where == (LINE,) and "64x256x14x14 most of all" in both.message, "the program's own are more"
    assert both.evidence["within_convolutions"].value == 12 * MS


def test_rules_of_work_are_asked_of_kernels_at_the_devices_ceilings():
    """Attention by hand: the host launches it in no time, its kernels take 80 ms of 100, of a device that is known."""
    scores = (8, 16, 1024, 1024)
    launched = (
        op("bmm", (128, 1024, 64), (128, 64, 1024), dtype="c10::Half", ms=10, bound="compute"),
        op("_softmax", scores, dtype="c10::Half", ms=60),
        op("bmm", (128, 1024, 1024), (128, 1024, 64), dtype="c10::Half", ms=10, bound="compute"),
    )
    on_host = tuple(msgspec.structs.replace(group, ns=1000.0) for group in launched)
    device = DeviceLedger("NVIDIA A100-SXM4-40GB", busy_ns=80 * MS, idle_ns=20 * MS, span_busy_share=0.8)
    (found,) = Case(ops=on_host, extra={"device": device, "device_ops": launched}).raised("BRR105")
    floor = 2 * 2.0 * 128 * 1024 * 1024 * 64 / 312e12 * 1e9  # two products at the data sheet's rate of fp16
    assert found.evidence["floor_of_products"].value == pytest.approx(floor, rel=0.001)
    assert found.saving.expected_ns == pytest.approx(0.8 * 0.85 * (80 * MS - 1.6 * floor), rel=0.001)
    assert not Case(ops=on_host, extra={"device": device}).raised("BRR105")


def test_what_a_device_that_hardly_works_could_save_is_not_told():
    launched = (product(1024, 768, 50257, dtype="c10::Half", gflops=20000.0),)
    device = DeviceLedger("gpu", busy_ns=5 * MS, idle_ns=95 * MS, span_busy_share=0.05)
    assert not Case(ops=launched, extra={"device": device, "device_ops": launched}).raised("BRR109")


def test_casts_are_part_of_a_chain_on_a_device_where_one_kernel_would_make_them_in_passing():
    """A norm that widens to fp32 and comes back: as transformers write RMSNorm."""
    big, inside = (16, 1024, 1024), {"parents": ("aten::to", "aten::_to_copy")}
    ops = (
        op("copy_", big, big, dtypes=("float", "c10::BFloat16"), ms=4, order=1, **inside),
        op("pow", big, ms=4, order=2),
        op("mean", big, ms=3, order=3),
        op("mul", big, (16, 1024, 1), ms=4, order=4),
        op("copy_", big, big, dtypes=("c10::BFloat16", "float"), ms=4, order=5, **inside),
    )
    device = DeviceLedger("NVIDIA A100-SXM4-40GB", busy_ns=95 * MS, idle_ns=5 * MS, span_busy_share=0.95)
    (found,) = Case(ops=ops, extra={"device": device, "device_ops": ops}).raised("BRR201")
    assert found.message.startswith("5 elementwise ops in a row") and found.evidence["forward"].value == 19 * MS
    assert not Case(ops=ops).raised("BRR201")
