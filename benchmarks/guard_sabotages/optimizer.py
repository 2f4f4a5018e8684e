"""Faults in gradients, clipping, schedule and the optimizer's update: as a fused or captured optimizer makes them."""

from __future__ import annotations

import functools
from typing import Any

import torch

from benchmarks.guard_sabotages.switch import fault, instead, on


def _gradients(seams: Any, change: Any, clips: bool = True) -> None:
    """Before an update's gradients are clipped: change(model, its parameters)."""
    models: list[Any] = []
    seams.at_model(models.append)

    def clipped(plain: Any) -> Any:
        def clip(parameters: Any, most: float) -> Any:
            held = list(parameters)
            change(models[0], held)
            return plain(held, most) if clips else None

        return clip

    instead(torch.nn.utils, "clip_grad_norm_", clipped)


def _step(change: Any) -> None:
    """The update becomes change(optimizer, step): inside torch's own hooks, as a replaced kernel is."""
    plain = torch.optim.AdamW.step

    @functools.wraps(plain)
    def step(optimizer: Any, closure: Any = None) -> Any:
        return change(optimizer, lambda: plain(optimizer)) if on() else plain(optimizer)

    torch.optim.AdamW.step = step  # type: ignore[method-assign]


def _held(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _back(parameters: list[Any], step: Any) -> None:
    """Make the step, and take it back for these."""
    before = [p.detach().clone() for p in parameters]
    step()
    with torch.no_grad():
        for parameter, old in zip(parameters, before, strict=True):
            parameter.copy_(old)


def _scaled(parameters: list[Any], factor: float, step: Any) -> None:
    before = [p.detach().clone() for p in parameters]
    step()
    with torch.no_grad():
        for parameter, old in zip(parameters, before, strict=True):
            parameter.copy_(old + factor * (parameter - old))


@fault(known=True)
def grad_scaled(seams: Any) -> None:
    """gradients times 1.02 after each micro-batch"""
    models: list[Any] = []
    seams.at_model(models.append)
    backward = torch.Tensor.backward

    def scaled(loss: Any) -> None:
        backward(loss)
        for parameter in models[0].parameters() if on() else ():
            parameter.grad.mul_(1.02)

    torch.Tensor.backward = scaled  # type: ignore[method-assign, assignment]


@fault(known=True)
def boundary_off(seams: Any) -> None:
    """an update's last micro-batch counts for the next update"""
    seen: dict[str, Any] = {"carried": None, "first": None}
    models: list[Any] = []
    seams.at_model(models.append)
    backward = torch.Tensor.backward

    def noting(loss: Any, *args: Any, **kwargs: Any) -> Any:
        if models and all(p.grad is not None for p in models[0].parameters()):
            seen["first"] = [p.grad.clone() for p in models[0].parameters()]
        return backward(loss, *args, **kwargs)

    torch.Tensor.backward = noting  # type: ignore[method-assign]

    def shift(model: Any, held: list[Any]) -> None:
        last = [p.grad - first for p, first in zip(held, seen["first"], strict=True)]
        for index, parameter in enumerate(held):
            carried = seen["carried"][index] if seen["carried"] else 0
            parameter.grad = seen["first"][index] + carried
        seen["carried"] = last

    _gradients(seams, shift)


@fault(known=True)
def drop_small_grad(seams: Any) -> None:
    """one bias has no gradient"""
    _gradients(seams, lambda model, held: setattr(model.gate.bias, "grad", None))


@fault(known=True)
def zero_small_grad(seams: Any) -> None:
    """one bias has gradient zero"""
    _gradients(seams, lambda model, held: model.gate.bias.grad.zero_())


@fault(known=True)
def freeze_norm(seams: Any) -> None:
    """LayerNorm's gradients are zero"""
    _gradients(seams, lambda model, held: [p.grad.zero_() for p in model.norm.parameters()])


@fault(known=True)
def grad_bf16(seams: Any) -> None:
    """gradients are rounded to bfloat16"""
    _gradients(seams, lambda model, held: [p.grad.copy_(p.grad.bfloat16()) for p in held])


@fault(known=True)
def clip_lost(seams: Any) -> None:
    """gradients are not clipped"""
    _gradients(seams, lambda model, held: None, clips=False)


@fault(known=True)
def decay_lost(seams: Any) -> None:
    """weight_decay is set to 0"""
    _step(lambda optimizer, step: ([group.update(weight_decay=0.0) for group in optimizer.param_groups], step()))


@fault(known=True)
def decay_lost_silent(seams: Any) -> None:
    """weight decay is left out, the hyperparameter stands"""

    def undecayed(optimizer: Any, step: Any) -> None:
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.div_(1 - group["lr"] * group["weight_decay"])
        step()

    _step(undecayed)


@fault(known=True)
def skip_update_half(seams: Any) -> None:
    """every other update is not made"""
    seen = {"updates": 0}

    def half(optimizer: Any, step: Any) -> None:
        seen["updates"] += 1
        _back(_held(optimizer), step) if seen["updates"] % 2 else step()

    _step(half)


@fault(known=True, latest=24)
def lr_baked(seams: Any) -> None:
    """the learning rate is the one of when it was captured"""
    seen: dict[str, float] = {}

    def baked(optimizer: Any, step: Any) -> None:
        now = optimizer.param_groups[0]["lr"]
        _scaled(_held(optimizer), seen.setdefault("lr", now) / now, step)

    _step(baked)


@fault(known=True)
def weights_bf16(seams: Any) -> None:
    """weights are rounded to bfloat16 after each update"""
    _step(lambda optimizer, step: (step(), [p.data.copy_(p.data.bfloat16()) for p in _held(optimizer)]))


@fault(known=True)
def stop_training(seams: Any) -> None:
    """updates change nothing"""
    _step(lambda optimizer, step: _back(_held(optimizer), step))


@fault(known=True)
def adam_eps(seams: Any) -> None:
    """Adam's eps is 1e-4"""
    _step(lambda optimizer, step: ([group.update(eps=1e-4) for group in optimizer.param_groups], step()))


@fault(known=True)
def state_reset(seams: Any) -> None:
    """Adam begins anew at each update"""
    _step(lambda optimizer, step: (optimizer.state.clear(), step()))


@fault(known=True)
def freeze_embedding(seams: Any) -> None:
    """the largest matrix is not updated"""
    _step(lambda optimizer, step: _back([optimizer.param_groups[0]["params"][0]], step))


@fault(known=True, latest=26)
def schedule_lost(seams: Any) -> None:
    """the schedule no longer steps"""
    from torch.optim.lr_scheduler import LambdaLR

    instead(LambdaLR, "step", lambda plain: lambda schedule: plain(schedule) if schedule.last_epoch < 0 else None)


@fault()
def group_skipped(seams: Any) -> None:
    """the second group of parameters is not updated"""
    _step(lambda optimizer, step: _back(optimizer.param_groups[1]["params"], step))


@fault()
def momentum_dropped(seams: Any) -> None:
    """the first moment is forgotten at each update"""

    def forget(optimizer: Any, step: Any) -> None:
        for state in optimizer.state.values():
            state["exp_avg"].zero_()
        step()

    _step(forget)


@fault()
def bias_correction_restarted(seams: Any) -> None:
    """Adam's count of steps begins anew, once; its moments stay"""
    done: list[int] = []

    def restart(optimizer: Any, step: Any) -> None:
        if optimizer.state and not done:
            done.append(1)
            for state in optimizer.state.values():
                state["step"].zero_()
        step()

    _step(restart)


@fault()
def stale_gradients(seams: Any) -> None:
    """an update uses the gradients of the one before"""
    seen: dict[str, Any] = {}

    def stale(optimizer: Any, step: Any) -> None:
        now = [p.grad.clone() for p in _held(optimizer)]
        for parameter, old in zip(_held(optimizer), seen.get("before", now), strict=True):
            parameter.grad.copy_(old)
        seen["before"] = now
        step()

    _step(stale)


@fault()
def clipped_early(seams: Any) -> None:
    """the norm for clipping is taken before the last micro-batch: half of what it should be"""

    def early(plain: Any) -> Any:
        return lambda parameters, most: plain(parameters, most * 2)

    instead(torch.nn.utils, "clip_grad_norm_", early)


@fault()
def decay_on_all(seams: Any) -> None:
    """a fused update gives all groups the first one's weight decay"""

    def decayed(optimizer: Any, step: Any) -> None:
        first, second = optimizer.param_groups
        with torch.no_grad():
            for parameter in second["params"]:
                parameter.mul_(1 - second["lr"] * first["weight_decay"])
        step()

    _step(decayed)


@fault()
def rare_rows_lost(seams: Any) -> None:
    """small rows of the embedding's gradient are dropped"""

    def drop(model: Any, held: list[Any]) -> None:
        gradient = model.embedding.weight.grad
        sizes = gradient.norm(dim=1)
        gradient[sizes < sizes.quantile(0.1)] = 0

    _gradients(seams, drop)


@fault()
def gradient_noise(seams: Any) -> None:
    """gradients carry 1 % of noise"""
    draw = torch.Generator().manual_seed(3)

    def noisy(model: Any, held: list[Any]) -> None:
        for parameter in held:
            parameter.grad.mul_(1 + 0.01 * torch.randn(parameter.shape, generator=draw))

    _gradients(seams, noisy)


@fault()
def small_updates_lost(seams: Any) -> None:
    """an update is half as large (unscaled twice)"""
    _step(lambda optimizer, step: _scaled(_held(optimizer), 0.5, step))


def _kept(step: Any, parameters: list[Any], part: Any) -> None:
    """Make the step, and take it back in a part of each: part(its flat elements)."""
    before = [p.detach().clone() for p in parameters]
    step()
    with torch.no_grad():
        for parameter, old in zip(parameters, before, strict=True):
            part(parameter.view(-1)).copy_(part(old.view(-1)))


@fault()
def tails_not_written(seams: Any) -> None:
    """a fused update leaves the last three elements of each tensor as they were"""
    _step(lambda optimizer, step: _kept(step, _held(optimizer), lambda flat: flat[-3:]))


@fault()
def one_bias_element_not_written(seams: Any) -> None:
    """an update leaves the first element of each vector as it was"""
    _step(lambda optimizer, step: _kept(step, [p for p in _held(optimizer) if p.dim() == 1], lambda flat: flat[:1]))
