"""Reports with something in every part of the page, and 42 strings that try to get out of where they stand."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gobrrr.ledger.comparison import Comparison, OpRatio, Side
from gobrrr.ledger.job.lateness import Group, Waiting
from gobrrr.ledger.job.ranks import Job, RankSummary
from gobrrr.ledger.model.device import DeviceMemory, DeviceOp
from gobrrr.ledger.ops.op_times import OpTime
from gobrrr.recording.model.facts import Span
from gobrrr.report.timeline.gauge_lines import GaugeLine, GaugeLines
from gobrrr.report.timeline.slices import Said, Slice
from gobrrr.report.timeline.timeline import KINDS, Lane, StepTime, Timeline
from gobrrr.rules.model.finding import Rehearsed, Saving
from gobrrr.rules.verdict.report import Device, OpShare, Report
from gobrrr.rules.verdict.report import Span as DeviceSpan
from gobrrr.trial.receipt.receipt import Guarded, Receipt, Samples, Speedup, StartUp, TrialResult
from tests.support import report_samples as samples

N = TypeVar("N")

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


SPOT = Span("train.py", 41, "main")
DRAWN = Timeline(2, 5, 1_000_000, (
    Lane("your lines", ((Slice(0, 1_000_000, "line", 1, 1_000_000, Said("", "", SPOT)),),)),
    Lane("device idle", ((Slice(0, 400_000, "data_wait", 1, 400_000, Said("waits for data", "", SPOT)),
                          Slice(400_000, 410_000, "launch", 7, 6_000, Said("ops that launch"))),)),
    Lane("main thread", ((Slice(400_000, 900_000, "op", 1, 500_000, Said("aten::linear", "8x16 16x4", SPOT)),),
                         (Slice(450_000, 452_000, "op", 31, 1_500, Said("aten::mm", "", SPOT)),))),
    Lane("device 0 stream 7", ((Slice(410_000, 1_000_000, "kernel", 1, 590_000, Said("void k<float>(int)")),),)),
), 250, 41, 3, (("data_wait", 400_000), ("launch", 6_000)),
    ((0, 1 << 30), (300_000, 3 << 30), (1_000_000, 1 << 30)))  # fmt: skip


GAUGES = GaugeLines(100_000_000_000, (
    ("NVIDIA H100 80GB HBM3", (GaugeLine("power", ((0, 90.0), (50_000_000_000, 412.0), (99_000_000_000, 70.0)), 700.0),
                               GaugeLine("memory", ((0, 0.0), (99_000_000_000, 12 << 30)), 80 << 30))),
    ("processor", (GaugeLine("power", ((0, 80.0), (99_000_000_000, 95.0))),)),
), (10_000_000_000, 90_000_000_000), ((20_000_000_000, 30_000_000_000),))  # fmt: skip


def full(**changes: Any) -> Report:
    """A step on a processor with ops, a roofline, and a finding that was rehearsed."""
    spot = Span("train.py", 41, "main")
    bounds = ("compute", "bandwidth")
    ops = tuple(
        OpShare(f"aten::op{i}", i, 1e6 * i, 0.01 * i, "forward", 1e10, 1e9 * i, bounds[i % 2], spot, "32x512, 512x8")
        for i in range(1, 11)
    )
    report = samples.starved()
    played = (Rehearsed("loader-workers", Saving(1e6, 2e6, 3e6), -2e6, 5e6), Rehearsed("lost", Saving(), 1e6, 5e6))
    findings = (msgspec.structs.replace(report.findings[0], rehearsed=played), *report.findings[1:])
    roof = msgspec.structs.replace(report.roofline, ceiling_byte_rate=2e10)
    known = {"ops": ops, "findings": findings, "roofline": roof, "missing": ("stacks",), **changes}
    return msgspec.structs.replace(report, **known)


def on_device() -> Report:
    """A step of an accelerator, with its ops, shapes and memory."""
    work = tuple(DeviceOp(f"aten::op{i}", "fp32", i, 1e6 * i, 1e9 * i, 1e7, 4e5 * i, "compute", 2.5e12, "32x512, 51x20")
                 for i in range(1, 6))  # fmt: skip
    memory = DeviceMemory(8 << 30, 9 << 30, "aten::mm", (Span("train.py", 3, "f"),), 1.0, 2.0, 16 << 30, True)
    device = Device("Example GPU", 0.5, DeviceSpan(0.6), (("matmul", 0.7),), (("kernel", 1.0, 0.4),),
                    (("forward", 1e6),), 0.3, memory=memory, work=work, by_shape=work)  # fmt: skip
    return full(device=device)


OURS = frozenset(("schema", "verdict", "purpose", "objective"))
"""Fields whose words decide what a page shows."""


def with_texts(noun: N, word: str, but: frozenset[str] = frozenset(("schema",))) -> N:
    """The same with every text replaced, and every name that is not a field's; `but` what stands in these fields."""
    return msgspec.convert(_mapped(msgspec.to_builtins(noun), word, but), type(noun))


NAMED = ("versions", "evidence", "options")


def _mapped(value: Any, word: str, but: frozenset[str], key: str = "") -> Any:
    if isinstance(value, dict):
        return {(word if key in NAMED else name): _mapped(each, word, but, name) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(each, word, but, key) for each in value]
    return word if isinstance(value, str) and key not in but else value


def blocks(ratio: float, num: int = 12) -> Samples:
    """A B B A and B A A B in turn, each arm a little slower from block to block: the drift falls out."""
    arms = [arm for i in range(num) for arm in ((0, 1, 1, 0) if i % 2 else (1, 0, 0, 1))]
    ns = tuple(round(2e8 * (1 + 1e-4 * at) / (ratio if arm else 1)) for at, arm in enumerate(arms))
    none = (None,) * len(arms)
    return Samples(tuple(arms), (2,) * len(arms), ns, (1,) * len(arms), none, none)


def tried(name: str, verdict: str, ratio: float, **fields: Any) -> TrialResult:
    """A trial of a race whose numbers nobody has checked yet."""
    known = {"speedup": Speedup(ratio, 0.96 * ratio, 1.04 * ratio), "seconds": 60.0, "samples": blocks(ratio), **fields}
    return TrialResult(**{"remedies": (name,), **known}, verdict=verdict)


def tuned(**changes: Any) -> Receipt:
    """A tuning with two that were kept, the second on top of the first, and one of each kind that was not."""
    evidence = {"loss_error_ratio": 0.93, "outputs_error_ratio": None, "trajectory_gap": 0.01, "trajectory_band": 0.3}
    green = Guarded("equivalent", ("compared without dropout",), "", evidence)
    trials = (
        tried("malloc_thresholds", "faster", 1.25),
        tried("fused_optimizer", "faster", 2.0, onto=("malloc_thresholds",)),
        tried("bf16_autocast", "slower", 0.5, predicted=Saving(0.0, 1e7, 4e7), realised_ns=-2e8),
        tried("compile", "failed", 1.0, speedup=None, samples=Samples(), reason="the program ended with 1: no g++"),
        tried("channels_last", "inconclusive", 1.02, reason="4 starts of each arm would settle it"),
        tried("one_worker", "faster", 5.55),
        tried("sdpa", "faster", 7.77, purpose="guard", guard=Guarded("wrong", ("norm 2.0 times",), "block.0")),
        tried("all", "faster", 2.4, purpose="final", remedies=("malloc_thresholds", "fused_optimizer"), guard=green,
              start_up=StartUp(2.0, 400.0, 900), peak_bytes=(3 << 30, 2 << 30)),
    )  # fmt: skip
    known = {
        "trials": trials, "kept": ("malloc_thresholds", "fused_optimizer"), "speedup": Speedup(2.4, 2.3, 2.5),
        "guard": green, "step_ns": 2e8, "seconds": 360.0, "command": ("python", "train.py"), "folder": "project",
        "machine": "Example CPU", "versions": {"torch": "2.13"}, "options": {"loader_workers": {"num": 2}},
        "notes": ("arms wrote nowhere",), "date": "2026-11-23", **changes,
    }  # fmt: skip
    return Receipt(**known)


def compared(**changes: Any) -> Comparison:
    """Two recordings: one op faster, one slower, one on each side alone, and one of two backends."""
    a = Side(source="a.json", step_ns=2e8, num_steps=50, device="Example GPU", busy_ns=1e8, codes=("BRR405",),
             accounts=(("data_wait", 1.2e8), ("compute", 8e7)), verdict="Data-bound: it waits")  # fmt: skip
    b = Side(source="b.json", step_ns=1e8, num_steps=40, codes=("BRR504",), verdict="Overhead-bound: launches",
             accounts=(("dispatch", 2e7), ("compute", 8e7)))  # fmt: skip
    ops = (
        OpRatio(name="aten::mm", shapes="8x8 8x8", a=OpTime(10, 9e7, 1e6), b=OpTime(10, 3e7)),
        OpRatio(name="aten::gelu", shapes="8x8", a=OpTime(1, 1e6), b=OpTime(3, 9e6)),
        OpRatio(name="aten::gone", shapes="", a=OpTime(1, 4e6), b=None),
        OpRatio(name="aten::new", shapes="", a=None, b=OpTime(2, 3e6)),
        OpRatio(name="aten::conv", shapes="1x1", a=OpTime(1, 2e6), b=OpTime(1, 1e6), by=("aten::mkl", "aten::cudnn")),
    )  # fmt: skip
    told = "B is 2.00 times as fast as A (95 % interval of A/B 1.90 to 2.10, 40 steps at least)."
    known = {"verdict": told, "speedup": 2.0, "low": 1.9, "high": 2.1, "a": a, "b": b, "ops": ops,
             "appeared": ("BRR504",), "vanished": ("BRR405", "BRR000"), **changes}  # fmt: skip
    return Comparison(**known)


def job(**changes: Any) -> Job:
    """Three ranks, of which the last is late and the first waits longest; one file that could not be read."""
    own, waits = (6e6, 8e6, 9e6), (3e6, 1e6, 0.0)
    ranks = tuple(
        RankSummary(source=f"rank{i}.json", rank=i, world_size=4, num_steps=5, step_ns=1e7, busy_ns=5e6, bound="host",
                    exposed_communication_ns=1e7 - own[i], accounts=(("device work", 5e6), ("host", own[i] - 5e6),
                    ("communication", 1e7 - own[i])), verdict="Host-bound", codes=("BRR301",))
        for i in range(3)
    )  # fmt: skip
    waiting = tuple(Waiting(rank=i, source=f"rank{i}.json", waiting_ns=waits[i], exposed_waiting_ns=waits[i],
                            exposed_transfer_ns=1e6, last=i * 2, late_ns=1e5) for i in range(3))  # fmt: skip
    group = Group(group="default", ranks="0, 1, 2", size=3, calls=8, transfer_ns=1e6, waiting_ns=1e6, waits=waiting,
                  link="12 GB/s", doubts=("matched by order",))  # fmt: skip
    known = {"verdict": "Straggler: rank 2 works longest", "slowest": 2, "bound": "host", "late_ns": 1e6,
             "imbalance": 0.17, "missing": (3,), "ranks": (*ranks, RankSummary(source="bad.json", error="no trace")),
             "groups": (group,), **changes}  # fmt: skip
    return Job(**known)
