"""Activations are computed again in backward instead of being kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import BeforeTraining, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class ActivationCheckpointing(Remedy):
    """model.gradient_checkpointing_enable() on models of transformers: a third more computing, far less memory."""

    name = "activation_checkpointing"
    title = "recomputes activations in backward: less memory, more computing"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    serves = "training"
    codes = ("BRR602",)
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
