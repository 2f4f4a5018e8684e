"""What a skilled person gets on the twelve by hand, in one process: forms of a model that are one line, or a few.

Runs of the program as it is and with each form, in turns, with the same seed. Time is CPU time of this one thread from
eval() to the end of the program, which other work on the machine stretches less than wall time.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_map

from benchmarks.lossy.cases import Case
from benchmarks.lossy.gate import loss
from benchmarks.lossy.inprocess import Edit, Program

WARM = 3
"""Runs before the first that counts: compilation, and packing of weights."""


class Form(NamedTuple):
    """One form of one model: speedup against float32, low and high quartile, and the change of the measure."""

    speedup: float
    low: float
    high: float
    value: float
    lost: float
    """In allowances of the gate."""


def int8(model: nn.Module) -> None:
    """torch's dynamic quantisation of linear and recurrent layers; Conv1D of transformers become linear first."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child).__name__ == "Conv1D":
                linear = nn.Linear(*child.weight.shape)
                linear.weight, linear.bias = nn.Parameter(child.weight.T.contiguous()), child.bias
                setattr(parent, name, linear)
    torch.ao.quantization.quantize_dynamic(model, {nn.Linear, nn.LSTM}, dtype=torch.qint8, inplace=True)


def bf16(model: nn.Module) -> None:
    """Weights in bfloat16; layers that are given float32 round it, and the model's outputs are float32 again."""
    model.bfloat16()

    def rounded(layer: nn.Module, args: Any) -> Any:
        return tree_map(lambda x: x.bfloat16() if torch.is_tensor(x) and x.dtype == torch.float32 else x, args)

    def widened(layer: nn.Module, args: Any, output: Any) -> Any:
        return tree_map(lambda x: x.float() if torch.is_tensor(x) and x.is_floating_point() else x, output)

    for layer in model.modules():
        if isinstance(getattr(layer, "weight", None), nn.Parameter) or isinstance(layer, nn.LSTM):
            layer.register_forward_pre_hook(rounded)
    model.register_forward_hook(widened)


def bf16_channels_last(model: nn.Module) -> None:
    """The same with convolutions in the layout that they like."""
    bf16(model)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def compiled(model: nn.Module) -> None:
    """torch.compile, in place; encoders are called alone by some."""
    for part in {model, getattr(model, "get_encoder", lambda: model)()}:
        part.compile()


def both(*edits: Edit) -> Edit:
    """One after the other."""
    return lambda model: [edit(model) for edit in edits] and None


FORMS: dict[str, Edit] = {"int8": int8, "bf16": bf16, "bf16, channels last": bf16_channels_last}
COMPILED: dict[str, Edit] = {"compile": compiled, "compile + bf16": both(bf16, compiled)}


def kept(edit: Edit) -> Edit:
    """The first model that was edited, in the place of each that follows."""
    first: list[nn.Module] = []

    def again(model: nn.Module) -> None:
        if not first:
            edit(model)
            first.append(model)
        model.__dict__ = first[0].__dict__

    return again


def by_hand(case: Case, folder: Path, forms: dict[str, Edit], runs: int) -> tuple[float, float, dict[str, Form | str]]:
    """Seconds and measure as it is, and each form; a form that fails says why."""
    program = Program(case, folder)
    arms: dict[str, Edit | None] = {"": kept(lambda model: None), **{name: kept(edit) for name, edit in forms.items()}}
    told: dict[str, Form | str] = {name: said for name in arms if (said := _failed(program, arms[name]))}
    arms = {name: edit for name, edit in arms.items() if name not in told}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    values: dict[str, list[float]] = {name: [] for name in arms}
    for seed in range(runs):
        for name, edit in arms.items() if seed % 2 else reversed(arms.items()):
            values[name].append(program.value(case.little, seed, edit))
            seconds[name].append(program.seconds)
    for name in [name for name in arms if name]:
        ratios = sorted(plain / own for plain, own in zip(seconds[""], seconds[name], strict=True))
        told[name] = Form(median(ratios), ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4], fmean(values[name]),
                          loss(case.gate, values[""], values[name]))  # fmt: skip
    return median(seconds[""]), fmean(values[""]), told


def _failed(program: Program, edit: Edit | None) -> str:
    """Warm it up; what it fails with, empty where it does not."""
    try:
        for seed in range(WARM):
            program.run(program.case.little, seed, edit)
    except Exception as error:  # whatever a form does not work with
        return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:80]}"
    return ""


def best(told: dict[str, Form | str]) -> tuple[str, float]:
    """The fastest form whose mean loss is within the allowance; none is 1."""
    fit = {name: form.speedup for name, form in told.items() if isinstance(form, Form) and form.lost <= 1}
    return max([("as it is", 1.0), *fit.items()], key=lambda each: each[1])
