"""What remedies promise of a program, from its report alone."""

from __future__ import annotations

import msgspec
import pytest

from gobrrr.remedies import registry
from gobrrr.rules.model.finding import Finding, Saving
from gobrrr.rules.verdict.report import Device, Report, Span, Step, Verdict

MS = 1e6
GPU = Device("NVIDIA V100", 0.9, Span(0.9))


def report(code: str, saving: Saving, device: Device | None = None) -> Report:
    found = Finding(code, "name", "compute", "warning", saving, "message")
    return Report(verdict=Verdict("compute", "sentence"), step=Step(10, 10**8, 10**8), findings=(found,), device=device)


@pytest.mark.parametrize(
    ("name", "code", "on_cpu"),
    [
        ("fused_optimizer", "BRR208", Saving(5 * MS, 10 * MS, 20 * MS)),
        ("bf16_autocast", "BRR102", Saving(5 * MS, 10 * MS, 20 * MS)),
    ],
)
def test_a_remedy_promises_what_its_finding_does_unless_a_cpu_is_known_to_differ(
    name: str, code: str, on_cpu: Saving
) -> None:
    told = Saving(5 * MS, 10 * MS, 20 * MS)
    assert registry.remedy(name).predicts(report(code, told)) == on_cpu
    assert registry.remedy(name).predicts(report(code, told, GPU)) == told


@pytest.mark.parametrize(("threads", "ceiling"), [(4, 1e8), (1, 0.0)])
def test_threads_of_a_starved_program_may_give_back_anything(threads: int, ceiling: float) -> None:
    short_wait, starved = registry.remedy("short_wait"), report("BRR905", Saving())
    assert short_wait.predicts(msgspec.structs.replace(starved, threads=threads)) == Saving(0.0, 0.0, ceiling)
    assert short_wait.predicts(msgspec.structs.replace(report("BRR904", Saving()), threads=4)) == Saving()


def test_no_finding_no_promise_and_none_beyond_the_step() -> None:
    fused = registry.remedy("fused_optimizer")
    assert fused.predicts(report("BRR401", Saving(1.0, 2.0, 3.0))) == Saving()
    twice = report("BRR208", Saving(0.0, 1 * MS, 80 * MS))
    twice = msgspec.structs.replace(twice, findings=twice.findings * 2)
    assert fused.predicts(twice).ceiling_ns == 1e8
