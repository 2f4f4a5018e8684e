"""At what precision torch multiplies fp32 matrices, by its older and its newer switches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from gobrrr.machine.probe.matmul_precision import matmul_precision, setting_back  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402

if not hasattr(torch.backends, "fp32_precision"):
    pytest.skip("this torch has the older switch alone", allow_module_level=True)

SET = {
    "": "highest",
    "torch.set_float32_matmul_precision('high')": "high",
    "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'": "medium",
    "torch.backends.mkldnn.matmul.fp32_precision = 'tf32'": "high",
    "torch.backends.mkldnn.matmul.fp32_precision = 'ieee'": "highest",
    "torch.backends.mkldnn.fp32_precision = 'bf16'": "medium",
    "torch.backends.fp32_precision = 'bf16'": "medium",
    "torch.set_float32_matmul_precision('high'); torch.backends.mkldnn.matmul.fp32_precision = 'bf16'": "medium",
}


def switches() -> list[str]:
    try:
        told = torch.get_float32_matmul_precision()
    except RuntimeError:
        told = "refused"
    backends = torch.backends
    return [told, *(each.fp32_precision for each in (backends, backends.cuda.matmul, backends.mkldnn.matmul))]


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = switches()
    torch.backends.mkldnn.matmul.fp32_precision = torch.backends.mkldnn.fp32_precision = "none"  # as torch starts
    yield
    torch.backends.fp32_precision = before[1]
    torch.backends.mkldnn.fp32_precision = before[1]
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision = before[2:]
    assert switches() == before


@pytest.mark.parametrize(("statement", "precision"), SET.items())
def test_it_is_told_whichever_switch_was_used(statement: str, precision: str) -> None:
    exec(statement)
    assert matmul_precision(torch) == precision


@pytest.mark.parametrize("statement", SET)
def test_it_is_set_back_to_what_it_was(statement: str) -> None:
    exec(statement)
    before, back = switches(), setting_back(torch)
    torch.set_float32_matmul_precision("medium")
    back()
    assert switches() == before


@pytest.mark.parametrize("statement", SET)
def test_the_remedy_leaves_it_as_it_was(statement: str) -> None:
    exec(statement)
    before, seams = switches(), Seams()
    install(seams, ["matmul_precision"])
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    seams.remove()
    assert switches() == before
