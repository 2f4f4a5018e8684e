"""torch.optim's multi-tensor implementation, switched on before the first step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.capture.hooks.dynamo import called_from_compiled
from gobrrr.remedies.mechanism.optimizer_groups import Group, Groups
from gobrrr.remedies.model import Remedy, SetKeyword
from gobrrr.rules.model.finding import Saving

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams
    from gobrrr.rules.verdict.report import Report

KINDS = ("Adam", "AdamW", "SGD", "RAdam", "NAdam", "RMSprop", "Adagrad")


class ForeachOptimizer(Remedy):
    """group["foreach"] = True for every group of a torch.optim optimizer that knows the switch."""

    name = "foreach_optimizer"
    title = "updates parameters in a few calls over lists of tensors"
    safety = "tolerance"
    place = "optimizer"
    codes = ("BRR208",)
    conflicts = ("fused_optimizer",)
    by_hand = "torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)"
    edit = SetKeyword(KINDS, "foreach", "True", unless=("fused", "differentiable"), positional=6)

    def predicts(self, report: Report) -> Saving:
        """On a CPU nothing is expected: lists of tensors take as many passes over memory as the loop does; that lost on
        ResNet-50 (0.43)."""
        called_for = super().predicts(report)
        return called_for if report.device is not None else Saving(0.0, 0.0, called_for.ceiling_ns)

    def apply(self, seams: Seams) -> None:
        def switch(optimizer: Any) -> None:
            groups = Groups(optimizer, self._can, foreach=True)

            def look(*_: Any) -> None:
                for each in groups.switched:
                    if _has_tensors(each.group):  # a schedule may bring one late
                        each.back()

            if groups.switched:
                groups.keep(seams)
                seams.undo(optimizer.register_step_pre_hook(called_from_compiled(look)).remove)
                seams.applied(self.name, type(optimizer).__name__)

        seams.at_optimizer(switch)

    @staticmethod
    def _can(group: dict[str, Any]) -> bool:
        if "foreach" not in group or group["foreach"]:
            return False
        return not group.get("fused") and not group.get("differentiable") and not _has_tensors(group)


def _has_tensors(group: Group) -> bool:
    """Among what it computes with: over lists of tensors torch refuses most of such."""
    import torch

    return any(isinstance(each, torch.Tensor) for each in (group.get("lr"), *group.get("betas", ())))
