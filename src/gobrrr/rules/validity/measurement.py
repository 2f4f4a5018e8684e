"""BRR903 to 908 and 911: doubts about the measurement itself. They cost nothing; critical ones make it unreliable."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from statistics import median

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.event_kinds import NO_WINDOW
from gobrrr.rules.data.wait_stages import rest_varies
from gobrrr.rules.model.cores import CROWDED, STARVED, other_load, starved, usable_cores
from gobrrr.rules.model.evidence import SLOWED, count, ratio, slowed, time
from gobrrr.rules.model.finding import Cause, Quantity, rule, slack
from gobrrr.rules.overhead.inference import longer
from gobrrr.units import duration, share
from gobrrr.words import NO_LOOK

HARDLY = 0.1
"""Share of what the program took from which the steps that were seen are worth a diagnosis."""
VERY_SLOWED = 10.0
"""As evidence.SLOWED: from here it is a warning."""
VERY_CROWDED = 0.5
"""Share of the cores that others kept busy; a quarter (CROWDED) moves medians by 10 % (proposed)."""
VERY_STARVED = 0.25
"""As cores.STARVED: from here it is a warning (proposed)."""
WORTH_NAMING = 0.1
"""Cores' worth of stolen time that is named."""
LINGERS = 0.1
"""Share by which steps after the profiled window are longer, from which on it is told: pytorch's issue 144455 has 10 to
20 %, an H200 had 20 to 40 % where the host is the limit."""
WATCHED, WATCHED_SHORT = 0.01, 0.03
"""Shares of a step that watching may take: of a millisecond and more (capture.session.pause.BAR), and of shorter ones
(the bars of benchmarks/overhead.py)."""
UNEXPLAINED, HARDLY_EXPLAINED = 0.10, 0.25
"""Share of the step that no account owns (gpuprof tells 10 %), or of the mean that rare slow steps own."""
OFTEN, OFTEN_SLOW = 0.2, 2.0
"""Share of steps of more than so many times the median from which slow ones are not rare (proposed)."""
RARE = "rare slow steps (ends of epochs, checkpoints)"
WANTED = ("plain", "ops", "shapes", "samples", "facts")
WANTED_OF_A_FILE = ("ops", "shapes", "stacks")
REPLAYED, MOSTLY = 0.05, 0.5
"""Share of kernel time under graph replay, or of device events without a launch, that is told; and half of it, from
which no cause is named."""
SHORT = 1e6
"""ns of a step that is too short for hooks of some microseconds each."""
STALLED = 0.1
"""Share of the step that a device stood still with work queued, from which on it is told. Proposed."""
ELSEWHERE = (
    "ranks: gobrrr run -- torchrun --nproc_per_node N script.py; a script: gobrrr run that one; else put "
    "`with gobrrr.watch():` into the function that they run"
)
"""Advise how to see the steps of processes that the program starts."""
WHAT = {
    "stacks": "Python stacks (no lines)",
    "plain": "plain steps",
    "ops": "ops",
    "shapes": "shapes (no FLOPs)",
    "samples": "sampled stacks (lines only of ops)",
    "facts": "settings, loaders and optimizers",
}
CUT = re.compile(
    r"could not be written|cut short|truncat|torn|checksum|killed|broke|breaks off|is damaged"
    r"|ends (?:within|before|early|in the middle)|are damaged",
    re.IGNORECASE,
)


def doubt(level: str, message: str, advice: str, evidence: dict[str, Quantity] | None = None) -> Cause:
    return Cause(level=level, message=message, advice=advice, evidence=evidence or {}, confidence="measured")


@rule("BRR903", "host", needs={"plain"})
def profiler_overhead(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """The profiled steps were much slower than the plain ones: proportions within the step may be off."""
    step = ledger.step
    if "offline" in ledger.signals:
        yield doubt(
            "note",
            "every step of this file ran under the profiler, which makes the host's side of it longer",
            "Compare the step with one without profiler before you count on milliseconds of the host.",
        )  # fmt: skip
        return
    times = slowed(ledger)
    if times <= SLOWED:
        return
    yield doubt(
        "warning" if times > VERY_SLOWED else "note",
        f"a step took {duration(step.wall_ns)} under the profiler, {times:.1f} times {duration(ledger.wall)}: "
        "shares of small ops are too high",
        "Trust the plain step and the sampled lines more than the split between ops.",
        {"slowed": ratio(times), "profiled_step": time(step.wall_ns), "plain_step": time(ledger.wall)},
    )  # fmt: skip


@rule("BRR904", "host")
def signals_missing(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Signals that were not seen, and so could not be judged."""
    yield from _steps_of_children(ledger)
    if "foreign" in ledger.signals:
        yield doubt(
            "warning",
            "nothing in the file is of PyTorch: kernels, copies and calls of CUDA are judged, and nothing else",
            "Does it use PyTorch? Then run its steps under torch.autograd.profiler.emit_nvtx(), which names their ops.",
            {},
        )
        return
    offline = "offline" in ledger.signals
    lacking = [signal for signal in (WANTED_OF_A_FILE if offline else WANTED) if signal not in ledger.signals]
    if not lacking:
        return
    yield doubt(
        "warning" if {"plain", "ops"} & set(lacking) else "note",
        f"the recording lacks {', '.join(WHAT[signal] for signal in lacking)}",
        _recorded_with(ledger, lacking)
        if offline
        else "Let the program make enough steps for all windows (--steps, --budget), and run no other profiler or "
        "debugger.",
        {"missing": Quantity(", ".join(lacking))}
        | (
            {"command": Quantity(f"profile({_arguments(lacking)})")} if offline and "nsys" not in ledger.signals else {}
        ),
    )  # fmt: skip


def _recorded_with(ledger: Ledger, lacking: Sequence[str]) -> str:
    if "nsys" not in ledger.signals:
        return "Record it with profile(record_shapes=True, with_stack=True)."
    ops = "Run the steps of a PyTorch program under torch.autograd.profiler.emit_nvtx(), and nsys names their ops. "
    return f"{ops if 'ops' in lacking else ''}Shapes and lines are in traces of torch.profiler alone."


def _arguments(lacking: Sequence[str]) -> str:
    """Return the arguments of torch.profiler's profile() that record the signals that a trace lacks."""
    wanted = {"ops": "activities=[CPU, CUDA]", "shapes": "record_shapes=True", "stacks": "with_stack=True"}
    return ", ".join(argument for signal, argument in wanted.items() if signal in lacking)


def children_work(ledger: Ledger) -> bool:
    """Whether processes of multiprocessing that are no loader workers used more CPU time than the program itself. Where
    torch.compile is used it cannot be told: its compilers are children too."""
    children = ledger.facts.children
    compiles = ledger.facts.compile.used
    return children is not None and children.processes > 0 and not compiles and children.others_ns > children.own_ns


def _steps_of_children(ledger: Ledger) -> Iterator[Cause]:
    children, step = ledger.facts.children, ledger.step
    if children is None or not children_work(ledger):
        return
    seen = step.seen_ns * max(1.0, ledger.facts.process_load or 1.0)
    trains = step.kind == "training" and seen >= HARDLY * children.others_ns  # one of the ranks, say: its steps count
    yield doubt(
        "warning" if trains else "critical",
        f"child processes used {duration(children.others_ns)} of CPU time, the program itself "
        f"{duration(children.own_ns)}: none of their work was seen",
        f"Watch those instead. {ELSEWHERE[0].upper()}{ELSEWHERE[1:]}.",
        {
            "children_cpu": time(children.others_ns), "process_cpu": time(children.own_ns),
            "processes": count(children.processes),
        },
    )  # fmt: skip


@rule("BRR905", "host", needs={"facts"}, remedies=("short_wait",))
def other_processes(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """CPU contention: the program's threads wait for cores, or others keep the cores busy that it may use."""
    cores, load, lost = usable_cores(ledger, machine), other_load(ledger), starved(ledger) or 0.0
    if lost <= STARVED and load <= CROWDED * cores:
        return
    message = f"other processes kept {load:.1f} of the {cores} usable cores busy"
    if lost > STARVED:
        stolen = ledger.facts.stolen_load or 0.0
        by = f": {message}" if load > CROWDED * cores else ""
        if stolen > WORTH_NAMING:
            by += f", the host {stolen:.1f}" if by else f": the host took {stolen:.1f} cores"
        message = f"threads waited for a core {share(lost)} of the time{by}"
    yield doubt(
        "warning" if lost > VERY_STARVED or load > VERY_CROWDED * cores else "note",
        message,
        "Stop other processes or wait for their end, and run again: the step may be much faster alone. Where they "
        "stay, let threads that wait sleep (GOMP_SPINCOUNT=1000).",
        {"other_load": ratio(load), "cores": count(cores), "starved": ratio(lost)},
    )  # fmt: skip


@rule("BRR906", "host")
def recording_cut_short(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """The program or its recording ended before its time. What is missing of a trace may be all that its device did."""
    notes = [note for note in ledger.missing if CUT.search(note)]
    if not notes:
        return
    offline = "offline" in ledger.signals
    yield doubt(
        "critical" if offline else "note",
        f"{notes[0]} (and {len(notes) - 1} more)" if offline and len(notes) > 1 else "; ".join(notes),
        "Copy the file again, or record again: what is missing may be all that the device did."
        if offline
        else "What was recorded until then is judged; let the program end by itself for the rest.",
        {"notes": count(len(notes))},
    )  # fmt: skip


@rule("BRR907", "host", needs={"plain"})
def watching_costs(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """gobrrr's own hooks surely took more of the plain step than it promises, or what it had torch record of a device
    lingers. Where the cost has no interval of its own, the step's says what can be told from noise."""
    cost, step = ledger.step.overhead_share, ledger.step
    if step.attached or step.lingering > LINGERS:
        yield _attached(ledger)
    promised = WATCHED_SHORT if ledger.wall < SHORT else WATCHED
    noise = slack(ledger) / ledger.wall if ledger.wall > 0 else 0.0
    surely = cost - noise if step.overhead_low is None else step.overhead_low
    if surely <= promised:
        return
    yield doubt(
        "warning" if surely > 5 * promised else "note",
        f"watching cost {share(cost)} of the plain step of {duration(ledger.wall)}; {share(promised)} is promised",
        "Such short steps are measured badly: use a larger batch, or count a larger unit as a step (gobrrr.steps)."
        if ledger.wall < SHORT
        else "Let the program make more steps: hooks rest between stretches when the profiled window is done.",
        {"overhead_share": ratio(cost), "surely": ratio(surely)},
    )  # fmt: skip


def _attached(ledger: Ledger) -> Cause:
    longer = f"{share(ledger.step.lingering)} longer than those before it"
    return doubt(
        "note",
        "few steps came before the profiled window, and those after it, which are told, may take longer by it"
        if ledger.step.attached else f"steps after the profiled window took {longer}, and are in no figure here",
        "What records kernels for torch's profiler (CUPTI) stays attached afterwards, and each launch costs more until "
        "the program ends. TEARDOWN_CUPTI=1 has torch detach it, from CUDA 12.6 on.",
        {"lingering": ratio(ledger.step.lingering)},
    )  # fmt: skip


def _unseen(ledger: Ledger) -> str:
    """Why no step was profiled, where the run itself has told."""
    told = next((text.removeprefix(f"{NO_WINDOW}: ") for text in ledger.missing if text.startswith(NO_WINDOW)), "")
    if "gobrrr.steps" in told or NO_LOOK in told:
        return f"{told[0].upper()}{told[1:]}."
    if "nothing was looked at" in told:
        return f"{told[0].upper()}{told[1:]}. Name an earlier step, or send the signal before the program ends."
    if "offline" in ledger.signals:
        how = "nsys profile --trace=cuda,nvtx" if "nsys" in ledger.signals else "profile(activities=[CPU, CUDA])"
        return f"The file holds no op and no kernel: record with {how} around the steps."
    return "Let the program make more steps: the profiled ones come after the first ones."


@rule("BRR908", "host", needs={"plain"})
def unexplained_time(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Time that no account owns, or that the median step does not show."""
    step = ledger.step
    # of steps that lengthen, the profiled ones were among the short: what they grew by is in no account
    grown = step.grown_ns if "ops" in ledger.signals else 0.0
    unowned = max(0.0, ledger.account("unattributed") - grown) / ledger.wall if ledger.wall > 0 else 0.0
    if unowned > UNEXPLAINED:
        yield doubt(
            "critical" if unowned > MOSTLY else "warning" if unowned > HARDLY_EXPLAINED else "note",
            f"{'' if 'ops' in ledger.signals else 'no step was profiled: '}{share(unowned)} of the step "
            f"({duration(unowned * ledger.wall)}) is unattributed",
            "Let it make more steps; work on other threads or in compiled code that calls no torch op hides here."
            if "ops" in ledger.signals
            else _unseen(ledger),
            {"unattributed": ratio(unowned)},
        )  # fmt: skip
    if step.between_share > UNEXPLAINED:
        yield doubt(
            "critical",
            f"{share(step.between_share)} of the time lies between the steps: what the device idles for then is no "
            "cost of any of them",
            "Record while there are requests all the time, or look at a part of the file.",
            {"between_share": ratio(step.between_share)},
        )  # fmt: skip
    rare = step.outlier_ns / step.mean_ns if step.mean_ns > 0 else 0.0
    middle = median(step.walls) if step.walls and step.averaged else math.inf
    slow = [wall > OFTEN_SLOW * middle for wall in step.walls]
    often = sum(slow) > OFTEN * len(step.walls)  # a loader's burst in every other step is in the mean step
    if rare > UNEXPLAINED and not often:
        shows = "which the figures here do not show" if step.averaged else "which the median step does not show"
        told = "and are in every figure here" if step.averaged and ledger.device is not None else shows
        crowd = (starved(ledger) or 0.0) > VERY_STARVED
        grows = 2 * longer(step) > step.outlier_ns and not crowd
        what = "steps that take longer and longer" if grows else "slow steps" if crowd else RARE
        beside = "offline" in ledger.signals and rest_varies(ledger) > HARDLY_EXPLAINED * step.mean_ns
        yield doubt(
            "critical" if beside else "note",
            f"{what} add {duration(step.outlier_ns)} ({share(rare)}) to the mean step, {told}",
            "Record steps without them: shares of a file are of all its steps."
            if beside
            else "See what grows with each step: a text, a graph, a list."
            if grows
            else "Threads that waited for a core make some steps long: watch it again on a quiet machine."
            if crowd
            else f"Look at {'the other loops that the report names, and at ' if ledger.loops else ''}what runs between "
            "epochs.",
            {"outlier_share": ratio(rare), "outliers": time(step.outlier_ns), "mean_step": time(step.mean_ns)},
        )  # fmt: skip


@rule("BRR911", "host", needs={"device"})
def device_stalled(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """The device had its next work and did not begin it: what the host did meanwhile is not why."""
    stalled = ledger.account("stalled")
    if ledger.device is None or stalled < STALLED * ledger.wall:
        return
    rules = all(stalled >= account.ns for account in ledger.accounts)
    kept = "nothing that the program did" if "foreign" in ledger.signals else "neither the program nor its loader"
    yield doubt(
        "critical" if rules else "note",
        f"the device stood still for {duration(stalled)} ({share(stalled / ledger.wall)} of the step) with work "
        f"queued: {kept} kept it",
        "Look for another process on the device, its power limit and clocks, a fabric that is slow, and at what the "
        "nodes of a graph wait for (nvidia-smi, rocm-smi, nsys).",
        {"stalled": time(stalled), "idle": time(ledger.device.idle_ns)},
    )  # fmt: skip
