"""Which ops of a step compute the same in every step: all that they read is constant, by the dataflow window's file.

A tensor is constant where it was there before the steps, lies in memory that none of them writes or allocates, and was
found unchanged after them; or where an op with the same scalars in each step makes it of constant ones alone. An op
whose result is written later by one that differs (a buffer of zeros) is none, nor one that draws random numbers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gobrrr.recording.model import event_kinds
from gobrrr.recording.trace_files.limits import Limits
from gobrrr.system import files

Key = tuple[str, tuple[Any, ...]]
"""An op's name, and the shapes of its tensors."""
RANDOM = ("rand", "normal", "uniform", "bernoulli", "multinomial", "poisson", "exponential", "cauchy", "geometric",
          "dropout", "gamma", "dirichlet", "binomial")  # fmt: skip
FRESH = "aten::lift_fresh"
"""Op that torch calls on a tensor of what lay outside of it: an array, a list of numbers."""


class _Attribute(msgspec.Struct):
    name: str
    value: Any = None


class _Values(msgspec.Struct):
    values: list[Any] = []
    shapes: list[Any] = []
    strides: list[Any] = []


class _Node(msgspec.Struct):
    id: int
    name: str
    ctrl_deps: int
    inputs: _Values
    outputs: _Values
    attrs: list[_Attribute] = []


class _File(msgspec.Struct):
    nodes: list[_Node] = []


class _Tensor(NamedTuple):
    number: int
    storage: int
    kind: str


class _Op:
    """One call: what it reads, writes and gives."""

    def __init__(self, node: _Node) -> None:
        told = {each.name: each.value for each in node.attrs}
        self.id, self.name, self.parent = node.id, node.name, node.ctrl_deps
        self.thread = told.get("tid")
        schema = told.get("op_schema") or ""
        self.reads = list(_tensors(node.inputs.values, node.inputs.shapes, node.inputs.strides))
        self.gives = list(_tensors(node.outputs.values, node.outputs.shapes, node.outputs.strides))
        self.writes = {
            each.storage
            for at in _written(schema)
            for each in _tensors(node.inputs.values[at : at + 1], node.inputs.shapes[at : at + 1], [])
        }
        read = {each.storage for each in self.reads}
        self.makes = {each.storage for each in self.gives if each.storage not in read or node.name == FRESH}
        self.key: Key = (node.name, shapes_of(node.inputs.shapes))
        self.scalars = [value for value in node.inputs.values if not any(_tensors([value], [[]], []))]
        self.may = bool(schema) and node.name != FRESH and not any(word in node.name for word in RANDOM)


def constant_ops(path: Path, unchanged: Sequence[str], limits: Limits) -> dict[Key, tuple[bool, ...]]:
    """For each key that has some, which of its calls in a step, in order, compute the same in every step.

    Raises OSError, UnicodeDecodeError and msgspec's errors where the file cannot be read; empty where it holds fewer
    than two whole steps.
    """
    nodes = msgspec.json.decode(files.read(path, limits.journal_frame_bytes), type=_File).nodes
    ops = sorted(map(_Op, nodes), key=lambda op: op.id)
    steps: list[list[_Op]] = [[]]
    for op in ops:
        if op.name == event_kinds.STEP_MARK:
            steps.append([])
        else:
            steps[-1].append(op)
    steps = [step for step in steps[:-1] if step]
    if len(steps) < 2:
        return {}
    varying = _varying(steps)
    made = {storage for op in ops for storage in (*op.makes, *op.writes)}
    known = [{(t.storage, t.kind) for op in step for t in op.reads if t.storage not in made} for step in steps]
    allowed = frozenset(unchanged)
    roots = {each for each in set.intersection(*known) if each[1] in allowed}
    constant = _constant(steps[-1], roots, varying)
    found: dict[Key, list[bool]] = defaultdict(list)
    for op in steps[-1]:
        found[op.key].append(op.id in constant)
    return {key: tuple(each) for key, each in found.items() if any(each)}


def _varying(steps: list[list[_Op]]) -> set[int]:
    """Ops of the last step that another step does not have, or has with other scalars."""
    scalars: list[dict[tuple[Key, int], list[Any]]] = []
    for step in steps:
        seen: Counter[Key] = Counter()
        scalars.append({})
        for op in step:
            scalars[-1][op.key, seen[op.key]] = op.scalars
            seen[op.key] += 1
    last, numbers = scalars[-1], iter(steps[-1])
    # A dictionary keeps the order of the step's ops.
    return {
        op.id
        for (place, value), op in zip(last.items(), numbers, strict=True)
        if any(other.get(place) != value for other in scalars[:-1])
    }


def _constant(step: list[_Op], roots: set[tuple[int, str]], varying: set[int]) -> set[int]:
    """Ids of the ops that are."""
    now: dict[int, tuple[int, bool]] = {}  # by tensor: its storage, and whether its value is constant
    writers: dict[int, list[_Op]] = defaultdict(list)
    constant: set[int] = set()
    opened: dict[Any, list[_Op]] = defaultdict(list)

    def is_constant(tensor: _Tensor) -> bool:
        storage, value = now.get(tensor.number, (-1, False))
        return value if storage == tensor.storage else (tensor.storage, tensor.kind) in roots

    def end(op: _Op) -> None:
        known = op.id in constant
        for storage in op.writes | op.makes:
            if known:
                writers[storage].append(op)
            else:
                constant.difference_update(each.id for each in writers.pop(storage, ()))
        for tensor in op.gives:
            now[tensor.number] = (tensor.storage, known)
        for tensor in op.reads:
            if tensor.storage in op.writes:
                now[tensor.number] = (tensor.storage, known)

    for op in step:
        stack = opened[op.thread]
        while stack and stack[-1].id != op.parent:
            end(stack.pop())
        if stack:  # memory that is its caller's alone is free again, and another's, afterwards
            op.writes &= {each.storage for each in (*stack[-1].reads, *stack[-1].gives)}
        for storage in op.makes:
            writers[storage] = []
        stack.append(op)
        if op.may and op.id not in varying and all(map(is_constant, op.reads)):
            constant.add(op.id)
    for stack in opened.values():
        while stack:
            end(stack.pop())
    return constant


def shapes_of(shapes: Any) -> tuple[Any, ...]:
    """Return the shapes of tensors in nested lists of shapes; scalars have none."""
    if shapes and all(type(each) is int for each in shapes):
        return (tuple(shapes),)
    return tuple(shape for each in shapes if isinstance(each, (list, tuple)) for shape in shapes_of(each))


def _tensors(values: Sequence[Any], shapes: Sequence[Any], strides: Sequence[Any]) -> Iterator[_Tensor]:
    """The tensors among values: [id, storage, offset, elements, bytes of one, device], alone or in lists."""
    for at, value in enumerate(values):
        if not isinstance(value, list) or not value:
            continue
        shape = shapes[at] if at < len(shapes) and isinstance(shapes[at], list) else []
        stride = strides[at] if at < len(strides) and isinstance(strides[at], list) else []
        if len(value) == 6 and isinstance(value[5], str) and isinstance(value[0], int):
            yield _Tensor(value[0], value[1], f"{shape} {stride} {value[4]}")
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
