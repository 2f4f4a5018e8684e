"""Reports with something in every part of the page, and 42 strings that try to get out of where they stand."""

from __future__ import annotations

from typing import Any

import msgspec

from gobrrr.ledger.devicemodel import DeviceMemory, DeviceOp
from gobrrr.recording.facts import Span
from gobrrr.report.history import KINDS, StepTime
from gobrrr.report.model import Device, OpShare, Report
from gobrrr.report.model import Span as DeviceSpan
from gobrrr.rules.model import Rehearsed, Saving
from tests.unit import report_samples as samples

MARK = "document.title='taken'"
HOSTILE = (
    f"<script>{MARK}</script>", f"</script><script>{MARK}</script>", f"<!--<script>{MARK}</script>", "<!--",
    "-->", "]]>",
    "<![CDATA[", f"<img src=x onerror={MARK}>", f'"><img src=x onerror="{MARK}">', f"'><svg/onload={MARK}>",
    f'" onmouseover="{MARK}', f"' onfocus='{MARK}' autofocus='", f"<svg><script>{MARK}</script></svg>",
    f"</title><script>{MARK}</script>", f"</style><script>{MARK}</script>", f"</pre></bdi><script>{MARK}</script>",
    f"</svg><script>{MARK}</script>", f"javascript:{MARK}", f"[x](javascript:{MARK})",
    f'<a href="javascript:{MARK}">x</a>',
    f'<iframe srcdoc="<script>parent.{MARK}</script>">', '<base href="//evil.example/">',
    "<style>*{display:none}</style>",
    '<link rel=stylesheet href="//evil.example/x.css">', '<meta http-equiv=refresh content="0;url=//evil.example">',
    '<form action="//evil.example"><input name=x>', '<object data="data:text/html,x">', "<math><mi//xlink:href='x'>",
    "{{ 7 * 7 }}", "{% for x in ().__class__.__mro__ %}{{ x }}{% endfor %}", "${7*7}", "&lt;script&gt;",
    "&#60;script&#62;",
    "&", "\x00<script>\x00", f"\x1b]0;taken\x07<b>{MARK}", "\u202e\u2066<b>right to left\u2069", "\u2028\u2029\r\n<b>",
    "\ud800<b>", "\ufeff\u200b<i>", "+ADw-script+AD4-", "a" * 100_000 + "<b>",
)  # fmt: skip
TIMES = tuple(StepTime(i, 62_000_000 + 100_000 * i, KINDS[i % len(KINDS)]) for i in range(1, 80))


def full(**changes: Any) -> Report:
    """A step on a processor with ops, a roofline, and a finding that was rehearsed."""
    spot = Span("train.py", 41, "main")
    bounds = ("compute", "bandwidth")
    ops = tuple(OpShare(f"aten::op{i}", i, 1e6 * i, 0.01 * i, "forward", 1e10, 1e9 * i, bounds[i % 2], spot)
                for i in range(1, 11))  # fmt: skip
    report = samples.starved()
    played = (Rehearsed("loader-workers", Saving(1e6, 2e6, 3e6), -2e6, 5e6), Rehearsed("lost", Saving(), 1e6, 5e6))
    findings = (msgspec.structs.replace(report.findings[0], rehearsed=played), *report.findings[1:])
    roof = msgspec.structs.replace(report.roofline, ceiling_byte_rate=2e10)
    known = {"ops": ops, "findings": findings, "roofline": roof, "missing": ("stacks",), **changes}
    return msgspec.structs.replace(report, **known)


def on_device() -> Report:
    """A step of an accelerator, with its ops, shapes and memory."""
    work = tuple(DeviceOp(f"aten::op{i}", "fp32", i, 1e6 * i, 1e9 * i, 1e7, 4e5 * i, "compute", "32x512, 512x2048")
                 for i in range(1, 6))  # fmt: skip
    memory = DeviceMemory(8 << 30, 9 << 30, "aten::mm", (Span("train.py", 3, "f"),), 1.0, 2.0, 16 << 30, True)
    device = Device("Example GPU", 0.5, DeviceSpan(0.6), (("matmul", 0.7),), (("kernel", 1.0, 0.4),),
                    (("forward", 1e6),), 0.3, memory=memory, work=work, by_shape=work)  # fmt: skip
    return full(device=device)


def with_texts(report: Report, word: str) -> Report:
    """The same with every text but its schema replaced."""
    return msgspec.convert(_mapped(msgspec.to_builtins(report), word), Report)


def _mapped(value: Any, word: str, key: str = "") -> Any:
    if isinstance(value, dict):
        return {(word if key == "versions" else name): _mapped(each, word, name) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(each, word, key) for each in value]
    return word if isinstance(value, str) and key != "schema" else value
