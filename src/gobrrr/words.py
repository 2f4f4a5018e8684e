"""Words and codes that several rooms share: annotations of torch's profiler, the line log, the frames of a journal.

Standard library only: the watched process writes them.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # the watched process imports no more than it must
    from collections.abc import Iterable

STEP, UPDATE, OPTIMIZER, LOADER = "ProfilerStep#", "Optimizer.step#", "Optimizer.", "enumerate(DataLoader)"
"""How names of torch's own annotations begin: of a step that torch.profiler.step() ends, of an optimizer's update, of
all that an optimizer annotates, of the wait for a batch (torch.profiler, torch.optim, torch.utils.data)."""

CALL, LINE, RETURN, MODULE, MODULE_END, BACKWARD, BACKWARD_END = range(7)
"""Ops of a line log: a function is called, a line of it runs, it returns; a module; a backward pass."""

HEADER, CHECK = struct.Struct("<cI"), struct.Struct("<I")
"""A journal's frame: its kind and the bytes of its payload; the payload; crc32 of all before it."""
EVENTS, RECORD = b"E", b"J"
"""Kinds of frames: quadruples of int64 (t_ns, kind, id, value; see recording.model.event_kinds), or one JSON object."""
EVENT_BYTES = 32  # of an event: four int64

NO_LOOK = "asks for no look"
"""Said of a signal that nobody hears."""

ACCEPTABLE = {
    "order": "the same samples in another order",
    "samples": "other samples, fewer of them, or other batches",
    "random": "other random draws, such as dropout masks",
    "precision": "a lower precision",
    "output": "other files or lines of output",
    "evaluation": "less evaluation",
    "hyperparameters": "other hyperparameters",
    "time": "work that is moved out of the step",
}
"""Changes of what a program computes that a user may accept of an edit (gobrrr prove --accept), with their meaning."""


_PHASES = (
    ("torch/utils/data/", "", "loading"), ("torch/serialization.py", "", "loading a file"),
    ("torch/optim/", "step", "optimizer"), ("torch/autograd/", "backward", "backward"),
    ("torch/_tensor.py", "backward", "backward"),
)  # fmt: skip
"""(part of a file's path, function or any, phase of a step)."""


def phase_of(frames: Iterable[tuple[str, str]]) -> str:
    """Return the phase of a step that a stack is in: backward, whatever it calls, else by the innermost frame that
    says; `frames`: (file, function) from the outermost on. Empty where none does."""
    found = [
        phase
        for file, function in frames
        for part, name, phase in (*_PHASES, ("", "forward", "forward"))
        if part in file and name in ("", function)
    ]
    return "backward" if "backward" in found else found[-1] if found else ""
