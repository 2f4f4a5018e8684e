"""The report as Markdown, small enough for a comment: verdict, costs, time. Everything foreign is escaped."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr import units
from gobrrr.report.text.bars import tenths
from gobrrr.report.text.sections import pace_of
from gobrrr.report.told.money import sentences
from gobrrr.report.told.overhead_text import watching_cost
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.verdict.place import shown
from gobrrr.rules.verdict.report import Device, Report
from gobrrr.rules.verdict.sentence import is_doubt
from gobrrr.system.escape import code, markdown

NUM_FINDINGS = 10  # findings in the table at most; proposed: fits a comment; settled by what readers miss


def to_markdown(report: Report, root: str = "") -> str:
    """GitHub-flavoured Markdown that ends with a newline; quotes no source, since it leaves the machine."""
    lines = (*_head(report), *_findings(report, root), *_time(report), *_device(report), *_doubts(report))
    return "\n".join(lines).rstrip("\n") + "\n"


def _head(report: Report) -> Iterator[str]:
    step = report.step
    interval = f" (95 %: {units.interval(step.low_ns, step.high_ns)})" if step.low_ns else ""
    yield f"**{markdown(report.verdict.sentence)}**"
    yield ""
    yield (
        f"Median of {step.plain_count} {markdown(step.kind)} steps: {units.duration(step.plain_wall_ns)}{interval}; "
        f"{'every step ran under the profiler.' if report.offline else f'{watching_cost(report)}.'}"
    )
    if told := pace_of(report):
        yield ""
        yield f"{markdown(told)}."
    if report.money:
        yield ""
        yield f"{markdown('; '.join(sentences(report.money)))}."
    yield ""


def _findings(report: Report, root: str) -> Iterator[str]:
    found = [f for f in report.findings if not is_doubt(f)]
    if not found:
        return
    yield "| finding | where | up to | expected | at least | what |"
    yield "|---|---|--:|--:|--:|---|"
    for finding in found[:NUM_FINDINGS]:
        yield _row(finding, root)
    if len(found) > NUM_FINDINGS:
        yield f"\nand {len(found) - NUM_FINDINGS} more"
    yield ""


def _row(finding: Finding, root: str) -> str:
    saving = finding.saving
    times = (units.duration(ns) for ns in (saving.ceiling_ns, saving.expected_ns, saving.low_ns))
    place = code(shown(finding.where[0], root)) if finding.where else ""
    says = _said(finding)
    name = f"{markdown(finding.code)} {markdown(finding.severity)}: {markdown(finding.name)}"
    return f"| {name} | {place} | {' | '.join(times)} | {says} |"


def _said(finding: Finding) -> str:
    """Return what is wrong, a full stop, and what to do."""
    return f"{markdown(finding.message).rstrip('.')}. {markdown(finding.advice)}".strip()


def _device(report: Report) -> Iterator[str]:
    device = report.device
    if device is None:
        return
    yield (
        f"{markdown(device.name)}: busy {units.share(device.busy_share)} of the step, "
        f"{units.share(device.span.busy_share)} from its first to its last event."
    )
    yield ""
    if not device.work:
        return
    yield "<details><summary>Ops by the kernels that they launched</summary>"
    yield ""
    yield "| op | dtype | calls | per step | of its peak | bound |"
    yield "|---|---|--:|--:|--:|---|"
    for op in device.listed:
        reached, calls = units.share(op.reached), f"{op.calls:.3g}"
        cells = (markdown(op.name), op.dtype, calls, units.duration(op.ns), reached, op.bound)
        yield f"| {' | '.join(cells)} |"
    yield from _by_shape(device)
    yield ""
    yield f"Peaks: {markdown(report.roofline.ceiling)}."
    yield ""
    yield "</details>"
    yield ""


def _by_shape(device: Device) -> Iterator[str]:
    if not device.by_shape:
        return
    yield ""
    yield "| op | dtype | shapes | calls | per step | TFLOP/s | of its peak | bound |"
    yield "|---|---|---|--:|--:|--:|--:|---|"
    for op in device.listed_shapes:
        rate = f"{op.flops / op.ns / 1e3:.3g}" if op.believed else ""
        cells = (markdown(op.name), op.dtype, markdown(op.shapes), f"{op.calls:.3g}", units.duration(op.ns), rate,
                 units.share(op.reached), op.bound)  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _time(report: Report) -> Iterator[str]:
    if not report.ledger:
        return
    yield "<details><summary>Where the time goes</summary>"
    yield ""
    yield "| account | share | per step |"
    yield "|---|--:|--:|"
    for account, percent in zip(report.ledger, tenths([a.share for a in report.ledger]), strict=True):
        yield f"| {markdown(account.account.replace('_', ' '))} | {percent:.1f} % | {units.duration(account.ns)} |"
    yield ""
    yield "</details>"
    yield ""


def _doubts(report: Report) -> Iterator[str]:
    for doubt in filter(is_doubt, report.findings):
        yield f"- {markdown(doubt.code)}: {_said(doubt)}"
    for missing in report.missing:
        yield f"- missing: {markdown(missing)}"
