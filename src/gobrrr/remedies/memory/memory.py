"""Remedies that trade memory for time: activations kept instead of recomputed, and activation checkpointing."""

from __future__ import annotations

from typing import Any, ClassVar

from gobrrr.remedies.edits.forms import BeforeTraining, SetKeyword
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy

ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "RewardConfig", "GRPOConfig")
"""Argument classes of transformers and trl; trl's have gradient_checkpointing=True where nobody says otherwise."""


class KeepActivations(Remedy):
    """The flag of transformers' layers that they are to be checkpointed, off. Layers that a forward may change (a batch
    norm's statistics), and those of the program's own classes, keep it: they change twice a step."""

    name = "keep_activations"
    title = "keeps activations for backward where memory has room, instead of computing them again"
    place = "model"
    late = True
    conflicts: ClassVar[tuple[str, ...]] = ("activation_checkpointing",)
    unseen = "what a layer changes in a hook changes once a step instead of twice"
    by_hand = "TrainingArguments(..., gradient_checkpointing=False)  # or layer(x) for checkpoint(layer, x)"
    edit = SetKeyword(ARGUMENTS, "gradient_checkpointing", "False", of=("transformers", "trl"))

    def apply(self, seams: Seams) -> None:
        def forget(model: Any) -> None:
            marked = [part for part in model.modules() if part.__dict__.get("gradient_checkpointing") is True
                      and not any(map(_may_move, part.modules()))]  # fmt: skip
            for part in marked:
                seams.replace(part, "gradient_checkpointing", False)
            if marked:
                seams.applied(self.name, f"in {len(marked)} layers of {type(model).__name__}")

        seams.at_model(forget)


def _may_move(module: Any) -> bool:
    """Whether a forward in train() mode may change it, as a batch norm's; of the program's own classes nobody knows."""
    from gobrrr.remedies.loader.copied_state import is_own

    return is_own(module) or any(getattr(module, kind, False) for kind in ("track_running_stats", "n_power_iterations"))


class ActivationCheckpointing(Remedy):
    """model.gradient_checkpointing_enable() on models of transformers: a third more computing, far less memory."""

    name = "activation_checkpointing"
    title = "recomputes activations in backward: less memory, more computing"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    serves = "training"
    by_hand = "model.gradient_checkpointing_enable()  # or torch.utils.checkpoint.checkpoint(layer, x)"
    edit = BeforeTraining(
        '{model}.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})'
    )

    def apply(self, seams: Seams) -> None:
        def enable(module: Any) -> None:
            switch = getattr(module, "gradient_checkpointing_enable", None)
            if switch is None or getattr(module, "is_gradient_checkpointing", False):
                return
            switch(gradient_checkpointing_kwargs={"use_reentrant": False})
            seams.undo(module.gradient_checkpointing_disable)
            seams.applied(self.name, type(module).__name__)

        seams.at_model(enable)
