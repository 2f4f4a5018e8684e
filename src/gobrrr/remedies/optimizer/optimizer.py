"""The remedy that turns on an optimizer's fused kernel before its first step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gobrrr.capture.hooks.transform_guard import called_from_compiled
from gobrrr.remedies.edits.forms import SetKeyword
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.verdict.report import Report

FUSED_KINDS = ("Adam", "AdamW", "SGD", "Adagrad")
"""torch.optim classes with a fused kernel on the CPU; what this build lacks is asked of the optimizer itself."""
SETTINGS = {"fused": True, "foreach": False}


class FusedOptimizer(Remedy):
    """group["fused"] = True for every group of a torch.optim optimizer that knows the switch."""

    name = "fused_optimizer"
    title = "updates all parameters in one fused kernel (on a CPU torch's default is a loop)"
    safety = "tolerance"
    place = "optimizer"
    saves_memory = True
    serves = "training"
    by_hand = "torch.optim.AdamW(..., fused=True)  # or the class that you use"
    # Not SGD with a momentum, its third argument: torch's own raises where a parameter's first gradient comes late.
    # Nor beside Lightning's clipping, which refuses an optimizer that unscales gradients itself (mixed precision).
    edit = SetKeyword(
        FUSED_KINDS, "fused", "True", unless=("foreach", "differentiable", "capturable", "momentum"),
        without=("gradient_clip_val",), positional=2,
    )  # fmt: skip

    def is_pointless(self, report: Report) -> bool:
        return super().is_pointless(report) or report.fusable is False

    def apply(self, seams: Seams) -> None:
        def switch(optimizer: Any) -> None:
            fused = _Fused(optimizer)
            if not fused.switched:
                return
            before_step = called_from_compiled(lambda _, *given: fused.look(*given))
            seams.undo(fused.off)
            seams.undo(optimizer.register_state_dict_post_hook(fused.as_before).remove)
            seams.undo(optimizer.register_load_state_dict_post_hook(fused.on).remove)
            seams.undo(optimizer.register_step_pre_hook(before_step).remove)
            num = f"{len(fused.switched)} of {len(optimizer.param_groups)} groups"
            seams.applied(self.name, f"{type(optimizer).__name__}, {num}")

        seams.at_optimizer(switch)


def _can(optimizer: Any, group: dict[str, Any]) -> bool:
    import torch

    if type(optimizer).__name__ not in FUSED_KINDS or not type(optimizer).__module__.startswith("torch.optim"):
        return False
    if "fused" not in group or group.get("fused") or group.get("differentiable") or group.get("capturable"):
        return False
    return all(torch.is_floating_point(p) and not p.is_sparse for p in group["params"])


class _Group:
    """A group that is fused until its settings are put back."""

    def __init__(self, group: dict[str, Any]) -> None:
        self.group, self.is_on = group, True
        self.before = {key: group.get(key) for key in SETTINGS}
        group.update(SETTINGS)

    def back(self) -> None:
        """Put the settings back as they were; safe to call twice."""
        if self.is_on:
            self.group.update(self.before)
        self.is_on = False


class _Fused:
    """Groups of an optimizer that are fused. torch's kernel on a CPU walks over memory and heeds no strides: it is off
    where not all lies as the parameters do, for states come with a checkpoint and gradients from anywhere. A checkpoint
    has the settings of before: loaded without gobrrr it would go on with ours, and nobody would say so. (A file of the
    whole optimizer has ours.)"""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.on()

    def on(self, *_: Any) -> None:
        """Switch on, at first and when a checkpoint was loaded, whose groups are others."""
        import torch

        self.switched = [_Group(group) for group in self.optimizer.param_groups if _can(self.optimizer, group)]
        self._same, self._strides = 0, list[tuple[int, ...]]()
        for parameter, state in self.optimizer.state.items():  # one that was loaded may count its steps in a number;
            if "step" in state and not isinstance(state["step"], torch.Tensor):  # the kernel wants a float32 tensor
                state["step"] = torch.tensor(float(state["step"]), dtype=torch.float32, device=parameter.device)

    def off(self) -> None:
        """Put all settings back."""
        for each in self.switched:
            each.back()

    def as_before(self, _: Any, state: dict[str, Any]) -> None:
        """A checkpoint's settings."""
        for told, mine in zip(state["param_groups"], self.optimizer.param_groups, strict=True):
            told.update(next((each.before for each in self.switched if each.is_on and each.group is mine), {}))

    def look(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Look before each step; at states only where they may be new, or parameters have moved."""
        strides = [parameter.stride() for each in self.switched for parameter in each.group["params"]]
        self._same = self._same + 1 if strides == self._strides else 0
        self._strides = strides
        states = self.optimizer.state if self._same < NEW else {}
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)  # the first is the optimizer
        for each in self.switched:
            if each.is_on and not all(_alike(parameter, states) for parameter in each.group["params"]):
                each.back()
            if each.is_on and each.group.get("momentum"):
                self._begin_late(each, has_closure=closure is not None)

    def _begin_late(self, each: _Group, has_closure: bool) -> None:
        """Make SGD's momentum for parameters that get their first gradient after others: its kernel wants all or none.
        Of zeros it makes what the loop begins with, but for dampening. A closure's gradients are still to come."""
        import torch

        states, parameters = self.optimizer.state, each.group["params"]
        without = [p for p in parameters if p not in states or states[p].get("momentum_buffer") is None]
        late = [p for p in without if (p.requires_grad if has_closure else p.grad is not None)]
        if not late or len(without) == len(parameters):
            return
        if each.group["dampening"]:
            each.back()
            return
        for parameter in late:
            states[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


NEW = 2
"""Steps after which an optimizer has made its states."""


def _alike(parameter: Any, states: Mapping[Any, Mapping[str, Any]]) -> bool:
    """Whether its gradient, and its state where that is asked for, lie in memory as it does."""
    gradient = parameter.grad
    if gradient is None:
        return True
    strides = parameter.stride()
    if gradient.stride() != strides or (len(strides) < 2 and not parameter.is_contiguous()):
        return False
    beside = states.get(parameter) or {}
    return all(each.stride() == strides for each in beside.values() if getattr(each, "shape", None) == parameter.shape)
