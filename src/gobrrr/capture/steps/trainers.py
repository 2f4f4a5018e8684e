"""Which known trainer runs the step: by the modules whose functions are on the stack when it ends."""

from __future__ import annotations

from types import FrameType
from typing import Any

from gobrrr.capture.source import statements
from gobrrr.capture.source.user_lines import user_line

KNOWN = {
    "transformers.trainer": "transformers",
    "lightning.pytorch.trainer.trainer": "lightning",
    "pytorch_lightning.trainer.trainer": "lightning",
    "fastai.learner": "fastai",
    "accelerate.optimizer": "accelerate",
}
"""The module whose code is on the stack, and the name by which rules.trainers knows whose arguments to tell of."""


MAKERS = {
    "lightning": ("Trainer",),
    "accelerate": ("Accelerator",),
    "fastai": ("Learner", "tabular_learner", "vision_learner", "text_classifier_learner", "language_model_learner"),
}
"""Names that a user calls to give it its arguments. Trainers of transformers have many subclasses: the object's own
says."""


def facts(frame: FrameType | None, files: list[str]) -> dict[str, Any]:
    """recording.facts.Settings.trainer, and where the user calls it and gives it its arguments. `files` are the user's
    source files."""
    trainer, outermost = _running(frame)
    makers = _makers(trainer, outermost) if trainer else ()
    return {
        "trainer": trainer,
        "trainer_span": user_line(outermost.f_back) if outermost is not None else None,
        "arguments_span": statements.call_line(files, makers),
        "argument_lines": statements.argument_lines(files, makers),
        "padding_span": statements.argument_line(files, "padding", "max_length"),
    }


def _running(frame: FrameType | None) -> tuple[str, FrameType | None]:
    """The outermost of them, and its outermost frame: a transformers Trainer uses accelerate. Empty where the program
    trains by itself."""
    found: tuple[str, FrameType | None] = ("", None)
    while frame is not None:
        known = KNOWN.get(frame.f_globals.get("__name__", ""))
        found = (known, frame) if known else found
        frame = frame.f_back
    return found


def _makers(trainer: str, frame: FrameType | None) -> tuple[str, ...]:
    if trainer != "transformers" or frame is None:
        return MAKERS.get(trainer, ())
    held = getattr(frame.f_locals.get("self"), "__dict__", {}).get("args")
    return (type(held).__name__,)
