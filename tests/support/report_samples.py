"""Reports made by hand, as real runs would give them: a starved loader, a balanced step, an unreliable run."""

from __future__ import annotations

from gobrrr.ledger.model.ledger import Account, Ledger, MemoryLedger, OtherLoop, Roofline, StepStats
from gobrrr.machine.model.machine import Machine, Measured
from gobrrr.recording.model.facts import Facts, SavedTensor, Span
from gobrrr.rules.model.finding import Finding, Quantity, Saving
from gobrrr.rules.verdict.build import build
from gobrrr.rules.verdict.report import Report

MS = 1e6
TRAIN = Span("train.py", 41, "main")


def accounts(wall_ms: float, **milliseconds: float) -> tuple[Account, ...]:
    """Accounts in milliseconds; what they leave of the step is unattributed."""
    rest = wall_ms - sum(milliseconds.values())
    named = {**milliseconds, "unattributed": rest}
    return tuple(Account(name, ms * MS, ms / wall_ms) for name, ms in named.items())


def step(wall_ms: float, **changes: object) -> StepStats:
    """48 plain steps within 2 % of their median, five profiled ones that ran 1.42 times slower."""
    known = {
        "count": 65, "plain_count": 48, "plain_wall_ns": wall_ms * MS, "low_ns": 0.986 * wall_ms * MS,
        "high_ns": 1.022 * wall_ms * MS, "wall_ns": 1.42 * wall_ms * MS, "profiled_count": 5, "warmup_count": 12,
        "overhead_share": 0.0031, **changes,
    }  # fmt: skip
    return StepStats(**known)  # type: ignore[arg-type]


def finding(code: str = "BRR401", expected: float = 30.0, **changes: object) -> Finding:
    """A finding that expects `expected` ms, at least 0.4 and at most 1.37 times that."""
    level = "critical" if expected >= 12.4 else "warning" if expected >= 6.2 else "note"
    known = {
        "code": code, "name": "data-wait", "bound": "data", "severity": level,
        "saving": Saving(0.4 * expected * MS, expected * MS, 41.2 / 30.0 * expected * MS),
        "message": "The loop waited 41.2 ms per step for its batch, 66 % of the step, with 0 workers.",
        "advice": "Give the loader 2 workers: this machine has 2.0 effective cores.",
        "where": (TRAIN,), "evidence": {"wait": Quantity(41.2 * MS, "ns"), "num_workers": Quantity(0, "1")},
        "remedies": ("loader-workers", "loader-prefetch"), **changes,
    }  # fmt: skip
    return Finding(**known)  # type: ignore[arg-type]


def doubt(severity: str = "critical") -> Finding:
    """A finding of band 9."""
    return Finding(
        "BRR902", "unsteady-machine", "unreliable", severity, Saving(),
        "The plain steps spread by 48 % around their median while other processes kept 1.7 cores busy.",
        "Run it again on an idle machine.",
    )  # fmt: skip


def machine() -> Machine:
    """A small computer whose ceilings were not measured."""
    return Machine("f", "Example CPU", ("avx2",), 4, 16 << 30, Measured(2.0, 1.9, 2.1, 9, "cores"), {}, (),
                   Measured(3000.0, 2900.0, 3100.0, 9, "ns"), Measured(500.0, 490.0, 510.0, 9, "ns"))  # fmt: skip


ROOFLINE = Roofline(
    flops=2.61e9, bytes=4e8, floor_ns=8.9 * MS, mfu=0.082, dtype="fp32", ceiling_flop_rate=5.12e11,
    speed_of_light=0.144, not_counted_share=0.021, not_counted=(("aten::unique", 0.012), ("aten::sort", 0.009)),
)  # fmt: skip
MEMORY = MemoryLedger(
    parameters=120 << 20, gradients=120 << 20, optimizer_state=240 << 20, activations=600 << 20, inputs=2 << 20,
    workspace=118 << 20, peak=1200 << 20, growth_per_step=0.0, bytes_per_parameter=16.0,
)  # fmt: skip
SAVED = (
    SavedTensor("blocks.0.attn", "aten::softmax", 96 << 20, 1), SavedTensor("blocks.0.mlp", "aten::gelu", 48 << 20, 1),
)  # fmt: skip
PHASES = (
    ("data", 41.2 * MS), ("forward", 8.1 * MS), ("loss", 0.4 * MS), ("backward", 10.1 * MS), ("optimizer", 1.7 * MS),
    ("other", 0.5 * MS),
)  # fmt: skip


def starved_ledger(**changes: object) -> Ledger:
    """A step of 62 ms of which the loop waits 41.2 ms for its loader."""
    known = {
        "step": step(62.0), "accounts": accounts(62.0, data_wait=41.2, compute=7.4, bandwidth=1.5, inefficiency=5.6,
                                                 dispatch=2.3, host=3.1, gc=0.1, uncounted=0.2),
        "phases": PHASES, "loops": (OtherLoop("evaluation (model in eval mode)", 0.118, 40),), "memory": MEMORY,
        "roofline": ROOFLINE, "facts": Facts(saved=SAVED), "threads": 2, **changes,
    }  # fmt: skip
    return Ledger(**known)  # type: ignore[arg-type]


def metrics() -> Finding:
    """A warning with a caller, found in a file that lies deeper."""
    return finding(
        "BRR305", 7.2, name="metrics-in-loop", bound="host", remedies=(), severity="warning",
        where=(Span("src/eval/metrics.py", 118, "update"), TRAIN),
        message="sklearn.metrics.f1_score runs on every step: 8.1 ms of Python.",
        advice="Gather predictions and score them once per epoch.",
    )  # fmt: skip


def starved(**changes: object) -> Report:
    """The typical report: one critical finding, one warning, five notes, one doubt that is a note."""
    notes = tuple(
        finding(
            code,
            ms,
            name=name,
            advice="",
            bound="overhead",
            where=(Span("model.py", 20 + i, "forward"),),
            message=message,
        )
        for i, (code, ms, name, message) in enumerate(
            (
                ("BRR304", 2.1, "for-loop-optimizer", "AdamW updates 148 tensors one by one: 1.7 ms per step."),
                ("BRR201", 1.9, "elementwise-chain", "Six elementwise ops in a row move 310 MiB that one could."),
                ("BRR205", 1.4, "dtype-casts", "12 casts per step copy 88 MiB."),
                ("BRR310", 1.1, "zero-grad-writes", "zero_grad(set_to_none=False) writes 120 MiB of zeros per step."),
                ("BRR205", 0.6, "dtype-casts", "4 casts per step copy 8 MiB."),
            )
        )
    )
    known = {
        "skipped": (("BRR602", "memory was not recorded"), ("BRR801", "torch.compile is not used")), "rank": 0,
        "command": ("python", "train.py", "--epochs", "1"), "exit_code": 0, "world_size": 1,
        "versions": {"torch": "2.13.0", "python": "3.11.7"}, "recording": ".gobrrr/train-1", **changes,
    }  # fmt: skip
    return build(starved_ledger(), machine(), [*notes, metrics(), doubt("note"), finding()], **known)  # type: ignore


def balanced() -> Report:
    """A healthy step: one note, nothing above 10 %."""
    ledger = Ledger(
        step=step(100.0), accounts=accounts(100.0, data_wait=0.4, compute=48.0, bandwidth=22.0, inefficiency=18.0,
                                            dispatch=6.0, host=5.0),
        roofline=Roofline(floor_ns=70 * MS, flops=2e10, mfu=0.61, ceiling_flop_rate=3.3e11, speed_of_light=0.7),
        threads=2,
    )  # fmt: skip
    return build(ledger, machine(), [
        finding("BRR201", 4.0, bound="bandwidth", name="elementwise-chain", message="Six elementwise ops move 310 MiB.")
    ])  # fmt: skip


def unreliable() -> Report:
    """The same starved step on a machine that others used."""
    ledger = starved_ledger(missing=("stacks of 3 of 5 profiled steps",))
    command = ("python", "train.py")
    return build(ledger, machine(), [finding(), doubt()], exit_code=1, command=command, rank=1, world_size=2)
