"""Remedies that trade memory for time: activations kept instead of recomputed, and activation checkpointing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gobrrr.remedies.edits.forms import BeforeTraining, SetKeyword
from gobrrr.remedies.edits.source import Change, Source
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

    return is_own(module) or _has_statistics(module)


CHECKPOINT = """import functools
import torch.utils.checkpoint


def checkpoint_blocks(model):
    found, inside = [], set()
    for blocks in model.modules():
        repeats = isinstance(blocks, (torch.nn.ModuleList, torch.nn.Sequential)) and len(set(map(type, blocks))) == 1
        updated = any(getattr(part, "track_running_stats", False) for part in blocks.modules())
        if repeats and len(blocks) > 1 and blocks not in inside and list(blocks.parameters()) and not updated:
            found += blocks
            inside.update(part for block in blocks for part in block.modules())
    kept = {}
    for block in found:
        block.forward = functools.partial(
            torch.utils.checkpoint.checkpoint, block.forward, use_reentrant=False, **kept
        )
"""
PRODUCTS = """[
        getattr(torch.ops.aten, name).default
        for name in ("mm", "addmm", "bmm", "convolution", "_scaled_dot_product_flash_attention",
                     "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention")
    ]
    kept = {"context_fn": functools.partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, products)}"""
NO_CACHE = """    for part in model.modules():
        if hasattr(getattr(part, "config", None), "use_cache"):
            part.config.use_cache = False
    kept"""
SELECTIVE = "selective"


@dataclass(frozen=True)
class CheckpointBlocks:
    """The edit: the model's own switch where transformers make it, else a helper for blocks that repeat."""

    amount: str = "1"
    """Share of the blocks, from the input on; SELECTIVE: all, of which results of products and convolutions are kept
    (torch.utils.checkpoint.create_selective_checkpoint_contexts)."""

    def __call__(self, source: Source, lines: Sequence[int] = ()) -> list[Change]:
        """Add a statement before training."""
        theirs = source.imported("transformers")
        if theirs and self.amount == "1":
            own = '{model}.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})'
            return BeforeTraining(own)(source, lines)
        helper = CHECKPOINT
        if theirs:  # a cache of keys would be filled twice
            helper = helper.replace("    kept", NO_CACHE, 1)
        if self.amount == SELECTIVE:
            helper = helper.replace("kept = {}", f"products = {PRODUCTS}", 1)
        elif self.amount != "1":
            helper = helper.replace("in found:", f"in found[: round({self.amount} * len(found))]:", 1)
        return BeforeTraining("checkpoint_blocks({model})", helper)(source, lines)


class ActivationCheckpointing(Remedy):
    """torch.utils.checkpoint around blocks that repeat: a third more computing, far less memory."""

    name = "activation_checkpointing"
    title = "recomputes activations in backward: less memory, more computing"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    serves = "training"
    unseen = "what a block changes in its forward (a counter of its own) changes twice a step"
    by_hand = (
        "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # or model.gradient_checkpointing_enable()"
    )
    edit = CheckpointBlocks()

    def apply(self, seams: Seams) -> None:
        def enable(module: Any) -> None:
            switch = getattr(module, "gradient_checkpointing_enable", None)
            if switch is not None:
                if not getattr(module, "is_gradient_checkpointing", False):
                    switch(gradient_checkpointing_kwargs={"use_reentrant": False})
                    seams.undo(module.gradient_checkpointing_disable)
                    seams.applied(self.name, type(module).__name__)
                return
            blocks = repeated_blocks(module)
            still = [block for block in blocks if not any(map(_has_statistics, block.modules()))]
            if len(still) < len(blocks):
                seams.declined(self.name, f"running statistics of {type(blocks[0]).__name__} would be updated twice")
            for block in still:
                seams.replace(block, "forward", _checkpointed(block.forward))
            if still:
                seams.applied(self.name, f"{len(still)} blocks of {type(module).__name__}")

        seams.at_model(enable)


def repeated_blocks(model: Any) -> list[Any]:
    """The outermost modules with parameters that repeat in a ModuleList or Sequential, all of one class."""
    from torch.nn import ModuleList, Sequential

    found, inside = list[Any](), set[Any]()
    for part in model.modules():
        repeats = isinstance(part, (ModuleList, Sequential)) and len(part) > 1 and len(set(map(type, part))) == 1
        if repeats and part not in inside and next(part.parameters(), None) is not None:
            found += part
            inside.update(each for block in part for each in block.modules())
    return found


def _has_statistics(module: Any) -> bool:
    return any(getattr(module, kind, False) for kind in ("track_running_stats", "n_power_iterations"))


def _checkpointed(forward: Any) -> Any:
    """A forward whose activations are computed again in backward, dropout's masks as they were."""
    import functools

    from torch.utils.checkpoint import checkpoint

    return functools.partial(checkpoint, forward, use_reentrant=False)
