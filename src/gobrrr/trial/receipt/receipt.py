"""Receipt: record of a tuning to believe and to repeat (JSON schema gobrrr.receipt/1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from statistics import median
from typing import TypeVar

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.guard.model.account import Account
from gobrrr.guard.model.gate import Gated as Gated
from gobrrr.guard.model.verdict import Guarded
from gobrrr.rules.model.finding import Saving
from gobrrr.system import files
from gobrrr.trial.sandbox import signature as mark
from gobrrr.trial.statistics.objective import SETTLED

Noun = TypeVar("Noun")
SCHEMA = "gobrrr.receipt/1"
MAX_BYTES = 256 << 20
"""A receipt holds every block of every trial: some hundred KB. What is larger was not written by us."""


class Speedup(msgspec.Struct, frozen=True):
    """Baseline time over candidate time: mean of the rounds' medians of paired blocks, and its interval."""

    median: float
    low: float
    high: float


class Samples(msgspec.Struct, frozen=True):
    """Raw blocks in the order in which they ran: arm (0 baseline, 1 candidate), steps, ns, and the round, from 1 on:
    blocks of one round are of the same two processes."""

    arm: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    ns: tuple[int, ...] = ()
    round: tuple[int, ...] = ()
    peak_bytes: tuple[int | None, ...] = ()
    """Most that each block's steps held, where that is the objective."""
    samples: tuple[int | None, ...] = ()
    """Samples of each block, where those are counted."""
    joules: tuple[float | None, ...] = ()
    """Energy of each block, where that is the objective."""

    def step_ns(self, arm: int) -> float | None:
        """Median of the steps of an arm's blocks, ns."""
        found = [ns / steps for which, steps, ns in zip(self.arm, self.steps, self.ns, strict=True) if which == arm]
        return median(found) if found else None

    def peak(self, arm: int) -> int | None:
        """Median of the peaks of an arm's blocks, bytes."""
        found = [peak for which, peak in zip(self.arm, self.peak_bytes, strict=False) if which == arm and peak]
        return round(median(found)) if found else None

    def energy(self, arm: int) -> float | None:
        """Median of the joules per step of an arm's blocks."""
        rows = zip(self.arm, self.steps, self.joules, strict=False)
        found = [joules / steps for which, steps, joules in rows if which == arm and joules]
        return median(found) if found else None

    def per_step(self, arm: int) -> float | None:
        """Samples of a step of an arm; null where none were counted."""
        rows = [row for row in zip(self.arm, self.steps, self.samples, strict=False) if row[0] == arm]
        counted = sum(samples or 0 for _, _, samples in rows)
        return counted / sum(steps for _, steps, _ in rows) if counted else None


class StartUp(msgspec.Struct, frozen=True):
    """Cost of a remedy before it gains: seconds of warm-up above the baseline's, and the steps that pay for it."""

    seconds: float = 0.0
    steps_to_pay: float | None = None
    program_steps: int | None = None
    """Steps that this program makes, where its end was seen."""


class Compiled(msgspec.Struct, frozen=True):
    """Graphs of torch.compile in the candidate, distinct graph breaks, and graphs made anew while it was measured,
    after the warm-up."""

    graphs: int
    graph_breaks: int
    recompiled: int = 0


class Figure(msgspec.Struct, frozen=True):
    """Figure with its interval."""

    value: float
    low: float
    high: float


class Headspace(msgspec.Struct, frozen=True, kw_only=True):
    """The most that any loader fix could give, by an arm whose batches were ready: a few of the program's own, replayed
    through its step. Nulls, and why, where that could not be measured."""

    reason: str = ""
    step_ns: float = 0.0
    """The program as it is, in the same sweeps; the median."""
    compute_ns: Figure | None = None
    """The step with its batches ready."""
    saved_ns: Figure | None = None
    """step_ns less compute_ns."""
    reached: Figure | None = None
    """Share of it that the loader remedies which were kept bring; null where none was, or it may be nothing."""
    samples: Samples = Samples()
    """Arm 1 is the one whose batches were replayed."""
    seconds: float = 0.0


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """One trial: `remedies` on top of `onto`, measured in pairs against `onto` alone."""

    remedies: tuple[str, ...]
    onto: tuple[str, ...] = ()
    objective: str = "time"
    """Measure that is compared: time, memory, throughput or energy."""
    options: dict[str, dict[str, int]] = {}
    """Options with which its remedies were applied, where several settings of them were tried: of a loader."""
    purpose: str = "add"
    """add (in the race), guard (its numbers were not those of the program) or final."""
    verdict: str
    """faster, slower, equivalent, inconclusive or failed; smaller and larger; less energy and more energy."""
    reason: str = ""
    speedup: Speedup | None = None
    """Null where nothing could be measured. Of throughput, of the time per sample."""
    memory: Speedup | None = None
    """The baseline's peak of memory over the candidate's, where that is the objective."""
    energy: Speedup | None = None
    """The same of the energy of a step."""
    p_value: float | None = None
    blocks_needed: int | None = None
    """For inconclusive: how many blocks would settle it."""
    starts_needed: int | None = None
    """And in how many starts of each arm; null where pairs of processes were not compared."""
    guard: Guarded = Guarded()
    predicted: Saving | None = None
    realised_ns: float | None = None
    """Saving per step of this trial, ns; the median."""
    baseline_step_ns: float | None = None
    start_up: StartUp = StartUp()
    compiled: Compiled | None = None
    peak_bytes: tuple[int | None, int | None] = (None, None)
    """Peak resident bytes of the two arms, from their starts on."""
    step_peak_bytes: tuple[int | None, int | None] = (None, None)
    """Median peak in bytes of the blocks' steps of the two arms, where that is the objective: of the device's tensors,
    or resident."""
    step_joules: tuple[float | None, float | None] = (None, None)
    """Median energy of a step of the two arms, where that is the objective."""
    samples: Samples = Samples()
    seconds: float = 0.0
    """Seconds that the trial took; of a heat its share."""

    @property
    def name(self) -> str:
        """Name what was tried: 'loader_workers (workers=2) + batched_fetch'."""
        return " + ".join(map(self._named, self.remedies))

    def _named(self, remedy: str) -> str:
        given = ", ".join(f"{option}={value}" for option, value in self.options.get(remedy, {}).items())
        return f"{remedy} ({given})" if given else remedy


class EditTold(msgspec.Struct, frozen=True):
    """An edit that was proven or refused, and what its user accepted of it (words of --accept)."""

    diff: str = ""
    env: dict[str, str] = {}
    args: tuple[str, ...] | None = None
    """Words behind the script instead of the program's own."""
    accepted: tuple[str, ...] = ()
    renames: dict[str, tuple[str, ...]] = {}
    """Parameter of the edited program -> those of the program that it holds, as --rename says it."""
    gates: tuple[tuple[str, str], ...] = ()
    """Rules of --accept on a measure of the user's own, each with where its value is read (--measure)."""
    of_commits: bool = False
    """The program as it is was another commit."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A point of a search behind gates, by one whole run: time and quality in the program's own seed."""

    name: str
    """Forms that were applied together; 'as it is' for the program itself."""
    mark: str = ""
    """kept, within (the gate, in this run), refused, undecided, not faster (when it was proven), or does not run."""
    speed: float | None = None
    """Time of the program as it is over its own, of one run each."""
    bytes: int = 0
    """Of the model's weights."""
    gates: tuple[Gated, ...] = ()
    stays: tuple[str, ...] = ()
    """Layers that stay as they were."""
    best: bool = False
    """No other point within the gates is as fast, as small and as good, and better in one of them."""
    reason: str = ""


CROWDED = 1.5
"""Beside seven others' programs on four cores a step of 144 ms took 4.9 s, and a remedy that keeps idle threads from
spinning was "24.72 times as fast"; on quiet cores the zoo's steps took 0.8 to 1.0 times those of their diagnosis."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to believe the result and to measure it again."""

    schema: str = SCHEMA
    verb: str = "tune"
    """tune or prove; a tuning behind gates proves."""
    points: tuple[Tried, ...] = ()
    """All that a search behind gates ran."""
    not_tried: dict[str, str] = {}
    """Forms that it did not try, and why."""
    trials: tuple[TrialResult, ...] = ()
    kept: tuple[str, ...] = ()
    options: dict[str, dict[str, int]] = {}
    """Options with which remedies were applied, of those that had some."""
    edits: dict[str, EditTold] = {}
    """Edits of the source among what was kept, or what was to be proven, by their names."""
    places: dict[str, tuple[str, ...]] = {}
    """Lines of the program ("train.py:12") at which remedies that were kept took hold, and left nothing as it was."""
    likely: tuple[str, ...] = ()
    """Remedies that seemed better and were not confirmed; empty where something was kept."""
    left: tuple[str, ...] = ()
    """Remedies that there was no time for; what promises most comes first."""
    measured: bool = True
    """False where no remedy was measured at all: then nothing is known of any."""
    objective: str = "time"
    """Measure that was made smaller: time, memory, throughput (time per sample) or energy."""
    speedup: Speedup | None = None
    """Speedup in the final confirmation, on fresh blocks; null without one. Below 1 where what shrank costs time."""
    memory: Speedup | None = None
    """Gain in memory, likewise; null for another objective."""
    energy: Speedup | None = None
    guard: Guarded = Guarded()
    complete: bool = True
    """False where the tuning was interrupted: what was finished stands."""
    command: tuple[str, ...] = ()
    """With keys and passwords masked."""
    folder: str = ""
    date: str = ""
    seed: int = 0
    machine: str = ""
    fingerprint: str = ""
    versions: dict[str, str] = {}
    script_sha256: str = ""
    step_ns: float | None = None
    """The untouched program's median step."""
    diagnosed_step_ns: float | None = None
    """The same before the race, in the diagnosis; null in receipts of before this was kept."""
    seconds: float | None = None
    """Wall time of the tuning, its diagnosis in it; null in receipts of before this was kept."""
    loop: str = ""
    """Loop whose steps were measured, in a word: recording.model.steps.LoopSteps.word."""
    headspace: Headspace | None = None
    """Where the program waits for its loader; null in receipts of before this was measured."""
    notes: tuple[str, ...] = ()
    mark: str = ""
    """Mark that this user wrote it on this machine and nobody changed it since; see trial.sandbox.signature."""


def is_of(trial: TrialResult, kept: Collection[str], options: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether a trial was of remedies that were kept, with the options that were."""
    return set(trial.remedies) <= set(kept) and all(options.get(name) == each for name, each in trial.options.items())


def is_crowded(receipt: Receipt) -> bool:
    """Whether the program as written was so much slower in the trial than before it that something else held the
    machine: then what is shown holds beside that, and nobody knows for how much without it."""
    before, now = receipt.diagnosed_step_ns, receipt.step_ns
    return bool(before and now and now > CROWDED * before)


def write(receipt: Receipt, file: Path) -> None:
    """Write it whole or not at all, for its owner alone. Raises OSError."""
    files.write(file, msgspec.json.format(msgspec.json.encode(receipt), indent=1))


def marked(receipt: Receipt) -> Receipt:
    """The same with the mark of this user on this machine."""
    return msgspec.structs.replace(receipt, mark=mark.of(_unmarked(receipt), SCHEMA))


def is_own(receipt: Receipt) -> bool:
    """Whether this user's gobrrr wrote it on this machine, just as it is."""
    return mark.holds(receipt.mark, _unmarked(receipt), SCHEMA)


def _unmarked(receipt: Receipt) -> bytes:
    """Its bytes without the mark, as they are once it was read back: an integer in a float's place becomes a float."""
    plain = msgspec.json.encode(msgspec.structs.replace(receipt, mark=""))
    try:
        return msgspec.json.encode(msgspec.json.decode(plain, type=Receipt))
    except msgspec.ValidationError:  # a figure that is none: it cannot be read back, marked or not
        return plain


def read(file: Path) -> Receipt:
    """Read it back. Raises GobrrrError for what is missing, too large, truncated or no receipt."""
    receipt = decoded(file, Receipt, "receipt", "name a receipt.json that gobrrr tune wrote")
    if receipt.schema != SCHEMA:
        raise GobrrrError(
            f"{file} has the schema {receipt.schema!r}, not {SCHEMA}", "tune the program again with this gobrrr"
        )
    return receipt


def decoded(file: Path, kind: type[Noun], name: str, hint: str) -> Noun:
    """Return a file of JSON as a noun. Raises GobrrrError for what is missing, too large, truncated or another."""
    try:
        data = files.read(file, MAX_BYTES)
        if len(data) > MAX_BYTES:
            raise GobrrrError(f"{file} is too large for a {name}", hint)
        return msgspec.json.decode(data, type=kind)
    except OSError as error:
        raise GobrrrError(f"cannot read {file}: {error.strerror}", hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GobrrrError(f"{file} is no {name}: {error}", hint) from None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict of the referee on one pair of combinations. `step_ns`: medians of baseline and candidate."""

    verdict: str
    reason: str = ""
    speedup: Speedup | None = None
    memory: Speedup | None = None
    energy: Speedup | None = None
    p_value: float | None = None
    blocks_needed: int | None = None
    starts_needed: int | None = None
    step_ns: tuple[float | None, float | None] = (None, None)
    start_up: StartUp = StartUp()
    compiled: Compiled | None = None
    peak_bytes: tuple[int | None, int | None] = (None, None)
    step_peak_bytes: tuple[int | None, int | None] = (None, None)
    step_joules: tuple[float | None, float | None] = (None, None)
    samples: Samples = Samples()
    accounts: tuple[tuple[Account, ...], tuple[Account, ...]] = ((), ())
    """Of each process of the baseline and of the candidate, where those are kept; in no receipt."""


def confirmed(remedies: tuple[str, ...], found: Measured, guard: Guarded, seconds: float) -> TrialResult:
    """The trial of what was compared in fresh processes and checked, in so many seconds."""
    before, speedup = found.step_ns[0], found.speedup
    realised = before * (1 - 1 / speedup.median) if before and speedup is not None else None
    return TrialResult(
        remedies=remedies, purpose="final", verdict=found.verdict, reason=found.reason, speedup=speedup,
        p_value=found.p_value, blocks_needed=found.blocks_needed, starts_needed=found.starts_needed, guard=guard,
        baseline_step_ns=before, realised_ns=realised if found.verdict in SETTLED else None, start_up=found.start_up,
        compiled=found.compiled, peak_bytes=found.peak_bytes, samples=found.samples, memory=found.memory,
        energy=found.energy, step_peak_bytes=found.step_peak_bytes, step_joules=found.step_joules, seconds=seconds,
    )  # fmt: skip
