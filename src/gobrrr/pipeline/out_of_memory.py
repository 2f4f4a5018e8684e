"""Did a run die of memory: what its process left of it, or what its journal says of one that the kernel killed."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.ledger.memory import memory_ledger
from gobrrr.machine.probe.system_probe import memory_limit, oom_kills
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.out_of_memory import Bounds, Input, OutOfMemory, Process, Role
from gobrrr.recording.run_folder.failure_file import failures
from gobrrr.recording.run_folder.noted_facts import facts_of
from gobrrr.recording.run_folder.run import load_run
from gobrrr.rules.memory.out_of_memory import Diagnosis, diagnosis
from gobrrr.rules.verdict.place import reader

KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of a process that SIGKILL ended, seen directly and through a shell."""
FULL = 0.8
"""Share of the limit from which a killed process is taken to have died of memory where the kernel's count of kills is
not known (proposed)."""


def died_of(folder: Path, code: int, kills_before: int | None = None) -> Diagnosis | None:
    """Return why a run ran out of memory; None where it did not. `kills_before`: oom_kills() before it began."""
    if found := failures(folder):
        return diagnosis(_beside(found[0], folder), reader(str(Path.cwd()), anywhere=True))
    if code not in KILLED:
        return None
    kills = oom_kills()
    known = kills is not None and kills_before is not None
    if known and kills == kills_before:
        return None
    killed = _killed(folder)
    limit, used = killed.limits.memory or 0, killed.process.resident or 0
    if not known and used < FULL * limit:
        return None
    return diagnosis(killed)


def _beside(failed: OutOfMemory, folder: Path) -> OutOfMemory:
    """Return the failure with the inputs of the steps before it, as far as some were looked at."""
    with contextlib.suppress(GobrrrError, OSError):
        recording = load_run(folder)[0]
        inputs = facts_of(recording, list(recording.main.steps) if recording.main else []).inputs
        usual = tuple(Input("", each.shape, each.dtype, each.num_bytes) for each in inputs)
        return msgspec.structs.replace(failed, usual=usual)
    return failed


def _killed(folder: Path) -> OutOfMemory:
    """Return what the journal knew at its last entry: sizes by role as they were noted, and the process's."""
    bounds = Bounds(memory=memory_limit())
    try:
        recording = load_run(folder)[0]
    except GobrrrError:
        return OutOfMemory(kind="killed", limits=bounds)
    facts = facts_of(recording, list(recording.main.steps) if recording.main else [])
    memory = memory_ledger(facts)
    found = {"parameters": memory.parameters, "gradients": memory.gradients, "optimizer state": memory.optimizer_state,
             "activations": memory.activations}  # fmt: skip
    roles = tuple(Role(name, size, ()) for name, size in found.items() if size)
    resident = recording.events[recording.events[:, 1] == event_kinds.RSS, 3]
    return OutOfMemory(
        kind="killed", steps=sum(len(loop.steps) for loop in recording.loops),
        alive={"cpu": tuple(sorted(roles, key=lambda role: -role.num_bytes))} if roles else {},
        optimizers=tuple(each.kind for each in facts.optimizers), training=bool(facts.optimizers),
        inputs=tuple(Input("input", each.shape, each.dtype, each.num_bytes) for each in facts.inputs[:2]),
        grown=facts.held_graphs, limits=bounds,
        process=Process(*(int(value) for value in (resident[-1], resident.max())) if len(resident) else ()),
        notes=("the kernel leaves no line: these are the sizes at the last entry of the journal",),
    )  # fmt: skip
