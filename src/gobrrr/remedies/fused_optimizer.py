"""The optimizer's own fused kernel, switched on before its first step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.capture.dynamo import called_from_compiled
from gobrrr.remedies.groups import Switched, kept_from_files
from gobrrr.remedies.model import Remedy, SetKeyword

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams
    from gobrrr.rules.verdict.model import Report

KINDS = ("Adam", "AdamW", "SGD", "Adagrad")
"""torch.optim classes with a fused kernel on the CPU; what this build lacks is asked of the optimizer itself."""


class FusedOptimizer(Remedy):
    """group["fused"] = True for every group of a torch.optim optimizer that knows the switch."""

    name = "fused_optimizer"
    title = "updates all parameters in one fused kernel (on a CPU torch's default is a loop)"
    safety = "tolerance"
    place = "optimizer"
    saves_memory = True
    codes = ("BRR208",)
    conflicts = ("foreach_optimizer",)
    serves = "training"
    by_hand = "torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)"
    edit = SetKeyword(KINDS, "fused", "True", unless=("foreach", "differentiable", "capturable"))

    def is_pointless(self, report: Report) -> bool:
        return super().is_pointless(report) or report.fusable is False

    def apply(self, seams: Seams) -> None:
        def switch(optimizer: Any) -> None:
            kind = type(optimizer).__name__
            groups = [group for group in optimizer.param_groups if self._can(optimizer, group)]
            switched = [Switched(group, fused=True, foreach=False) for group in groups]
            for group in switched:
                seams.undo(group.back)
            self._steps_as_tensors(optimizer)
            if groups:
                seams.undo(optimizer.register_step_pre_hook(called_from_compiled(partial(_watched, switched))).remove)
                seams.undo(kept_from_files(optimizer, switched))
                seams.applied(self.name, f"{kind}, {len(groups)} of {len(optimizer.param_groups)} groups")

        seams.at_optimizer(switch)

    @staticmethod
    def _can(optimizer: Any, group: dict[str, Any]) -> bool:
        import torch

        if type(optimizer).__name__ not in KINDS or not type(optimizer).__module__.startswith("torch.optim"):
            return False
        if "fused" not in group or group.get("fused") or group.get("differentiable") or group.get("capturable"):
            return False
        return all(torch.is_floating_point(p) and not p.is_sparse for p in group["params"])

    @staticmethod
    def _steps_as_tensors(optimizer: Any) -> None:
        """A state that was loaded may count its steps in a number; the kernel wants a float32 tensor beside the
        parameter."""
        import torch

        for parameter, state in optimizer.state.items():
            if "step" in state and not isinstance(state["step"], torch.Tensor):
                state["step"] = torch.tensor(float(state["step"]), dtype=torch.float32, device=parameter.device)


def _watched(switched: list[Switched], optimizer: Any, *_: Any) -> None:
    """Before each step: states come with a checkpoint, gradients from anywhere."""
    for group in switched:
        if group.is_on and not all(_alike(parameter, optimizer.state) for parameter in group.group["params"]):
            group.back()


def _alike(parameter: Any, state: Mapping[Any, Mapping[str, Any]]) -> bool:
    """Whether its gradient and state lie in memory as it does: the kernel on a CPU walks over memory and heeds no
    strides."""
    if parameter.dim() < 2:  # but for views with gaps, which no gradient and no state has
        return bool(parameter.is_contiguous())
    strides, gradient = parameter.stride(), parameter.grad
    if gradient is not None and gradient.stride() != strides:
        return False
    beside = state.get(parameter) or {}
    return all(each.stride() == strides for each in beside.values() if getattr(each, "shape", None) == parameter.shape)


REMEDY = FusedOptimizer()
