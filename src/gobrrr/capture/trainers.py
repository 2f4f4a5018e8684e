"""Which known trainer runs the step: by the modules whose functions are on the stack when it ends."""

from __future__ import annotations

from types import FrameType

KNOWN = {
    "transformers.trainer": "transformers",
    "lightning.pytorch.trainer.trainer": "lightning",
    "pytorch_lightning.trainer.trainer": "lightning",
    "fastai.learner": "fastai",
    "accelerate.optimizer": "accelerate",
}
"""The module whose code is on the stack, and the name by which rules.trainers knows whose arguments to tell of."""


def running(frame: FrameType | None) -> str:
    """The outermost of them: a transformers Trainer uses accelerate. Empty where the program trains by itself."""
    found = ""
    while frame is not None:
        found = KNOWN.get(frame.f_globals.get("__name__", ""), found)
        frame = frame.f_back
    return found
