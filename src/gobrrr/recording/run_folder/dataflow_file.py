"""The ops of each step with the tensors that they read, write and give, from the dataflow window's file, which torch's
execution trace observer writes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gobrrr.recording.model import event_kinds
from gobrrr.recording.trace_files.limits import Limits
from gobrrr.system import files

NO_WEIGHT, CONSTANT, TWICE, EARLIER, CARRIED = range(1, 6)
FATES = ("", "for no weight", "constant", "repeated", "earlier", "carried")
"""Fates of what an op computes; where two hold of one call, the later one here is told. No weight and no state that a
later step reads depends on it; an earlier step computed the same; this one did before; backward reads what an earlier
step made, its batch too; forward reads such a thing beside that backward."""
RANDOM = ("rand", "normal", "uniform", "bernoulli", "multinomial", "poisson", "exponential", "cauchy", "geometric",
          "dropout", "gamma", "dirichlet", "binomial")  # fmt: skip
FRESH = ("aten::lift_fresh", "aten::set_")
"""Ops that torch calls on a tensor of what lay outside of it: an array, a list of numbers, memory of a worker."""
SAID = ("Tensor", "GenericList", "Int", "Double", "Bool", "None", "Device", "String")
"""Types of arguments that the file tells of; of a storage or a generator it does not say which."""
NO_TENSOR, NUMBER = "[] [] 0", "[] [] 8"
"""Kinds of what stands for no tensor, and of what a Python number becomes: the file does not tell its value."""


class _Attribute(msgspec.Struct):
    name: str
    value: Any = None


class _Arguments(msgspec.Struct):
    values: list[Any] = []
    shapes: list[Any] = []
    strides: list[Any] = []
    types: list[str] = []


class _Node(msgspec.Struct):
    id: int
    name: str
    ctrl_deps: int
    inputs: _Arguments
    outputs: _Arguments
    attrs: list[_Attribute] = []


class _File(msgspec.Struct):
    nodes: list[_Node] = []


class Tensor(NamedTuple):
    """A tensor as an op was given it; `kind` is shape, strides and bytes of an element."""

    storage: int
    offset: int
    kind: str
    shape: tuple[int, ...]
    elements: int
    """In memory: what is expanded counts once."""


class Op:
    """One call: what it reads, writes and gives."""

    def __init__(self, node: _Node) -> None:
        told = {each.name: each.value for each in node.attrs}
        self.id, self.name, self.parent = node.id, node.name, node.ctrl_deps
        self.thread, schema = str(told.get("tid")), str(told.get("op_schema") or "")
        self.reads = list(_tensors(node.inputs.values, node.inputs.shapes, node.inputs.strides))
        self.values = {each.storage for each in self.reads if each.kind not in (NUMBER, NO_TENSOR)}
        """Storages that it reads, without Python's numbers: those look like counts of 64 bits, in memory of others."""
        self.gives = list(_tensors(node.outputs.values, node.outputs.shapes, node.outputs.strides))
        self.writes = {
            each.storage
            for at in _written(schema)
            for each in _tensors(node.inputs.values[at : at + 1], node.inputs.shapes[at : at + 1], [])
        }
        read = {each.storage for each in self.reads}
        self.makes = [each.storage for each in self.gives if each.storage not in read or node.name in FRESH]
        self.key = (node.name, tensor_shapes(node.inputs.shapes))
        self.scalars = repr([value for value in node.inputs.values if not any(_tensors([value], [[]], []))])
        self.is_op = bool(schema)
        self.is_told = all(kind.startswith(SAID) for kind in node.inputs.types)
        is_off = "dropout" in node.name and self.scalars.endswith("False]")  # train=False
        draws = any(word in node.name for word in RANDOM) and not is_off
        self.may = self.is_op and self.is_told and node.name not in FRESH and not draws


def steps_of(path: Path, limits: Limits) -> list[list[Op]]:
    """Return the ops of each step, in their order; of the last one only what began before the window closed.

    Raises OSError, UnicodeDecodeError and msgspec's errors where the file cannot be read.
    """
    nodes = msgspec.json.decode(files.read(path, limits.journal_frame_bytes), type=_File).nodes
    steps: list[list[Op]] = [[]]
    for op in sorted(map(Op, nodes), key=lambda op: op.id):
        if op.name == event_kinds.STEP_MARK:
            steps.append([])
        else:
            steps[-1].append(op)
    return [step for step in steps[:-1] if step] + steps[-1:]


def tensor_shapes(shapes: Any) -> tuple[Any, ...]:
    """Return the shapes of tensors in nested lists of shapes; scalars have none."""
    if shapes and all(type(each) is int for each in shapes):
        return (tuple(shapes),)
    return tuple(shape for each in shapes if isinstance(each, (list, tuple)) for shape in tensor_shapes(each))


def _tensors(values: Sequence[Any], shapes: Sequence[Any], strides: Sequence[Any]) -> Iterator[Tensor]:
    """The tensors among values: [id, storage, offset, elements, bytes of one, device], alone or in lists."""
    for at, value in enumerate(values):
        if not isinstance(value, list) or not value:
            continue
        shape = shapes[at] if at < len(shapes) and isinstance(shapes[at], list) else []
        stride = strides[at] if at < len(strides) and isinstance(strides[at], list) else []
        if len(value) == 6 and isinstance(value[5], str) and all(type(each) is int for each in value[:5]):
            sizes = tuple(each for each in shape if type(each) is int)
            steps = stride if len(stride) == len(shape) == len(sizes) else [1] * len(sizes)
            elements = math.prod(size for size, step in zip(sizes, steps, strict=True) if step)
            yield Tensor(value[1], value[2], f"{shape} {stride} {value[4]}", sizes, elements)
        elif isinstance(value[0], list):
            yield from _tensors(value, shape, stride)


@cache
def _written(schema: str) -> tuple[int, ...]:
    """Places of the arguments that an op writes, by its schema: aten::add_(Tensor(a!) self, Tensor other) -> ..."""
    arguments, depth, at, found = schema.partition("(")[2].rpartition(") ->")[0], 0, 0, []
    for number, sign in enumerate(arguments):
        if sign in "([":
            depth += 1
        elif sign in ")]":
            depth -= 1
        elif sign == "," and not depth:
            at += arguments[number + 1 : number + 3].strip() != "*"
        elif sign == "!":
            found.append(at)
    return tuple(found)
