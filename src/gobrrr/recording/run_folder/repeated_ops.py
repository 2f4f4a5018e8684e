"""Which ops of a step compute what an earlier step, or this one, has computed: by the dataflow window's file.

A tensor is the same where it was there before the steps, lies in memory that none of them writes or allocates, and was
found unchanged after them; or where an op with the same scalars makes it of the same ones. An op whose result is
written later by one that differs (a buffer of zeros) does not count, nor one that draws random numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
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
CONSTANT, TWICE = 1, 2
"""An op computed the same in an earlier step; one did in the same step."""
ONE_INPUT = 0.7
"""Share of a step's ops that are constant, above which its input must be (proposed)."""
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


class _Tensor(NamedTuple):
    storage: int
    offset: int
    kind: str


class _Op:
    """One call: what it reads, writes and gives."""

    def __init__(self, node: _Node) -> None:
        told = {each.name: each.value for each in node.attrs}
        self.id, self.name, self.parent = node.id, node.name, node.ctrl_deps
        self.thread, schema = str(told.get("tid")), str(told.get("op_schema") or "")
        self.reads = list(_tensors(node.inputs.values, node.inputs.shapes, node.inputs.strides))
        self.gives = list(_tensors(node.outputs.values, node.outputs.shapes, node.outputs.strides))
        self.writes = {
            each.storage
            for at in _written(schema)
            for each in _tensors(node.inputs.values[at : at + 1], node.inputs.shapes[at : at + 1], [])
        }
        read = {each.storage for each in self.reads}
        self.makes = [each.storage for each in self.gives if each.storage not in read or node.name in FRESH]
        self.key: Key = (node.name, tensor_shapes(node.inputs.shapes))
        self.scalars = repr([value for value in node.inputs.values if not any(_tensors([value], [[]], []))])
        self.is_op = bool(schema)
        said = all(kind.startswith(SAID) for kind in node.inputs.types)
        is_off = "dropout" in node.name and self.scalars.endswith("False]")  # train=False
        draws = any(word in node.name for word in RANDOM) and not is_off
        self.may = self.is_op and said and node.name not in FRESH and not draws


def repeated_ops(
    path: Path, unchanged: Sequence[str], limits: Limits, own: Sequence[str] = ()
) -> dict[Key, tuple[int, ...]]:  # fmt: skip
    """For each key that has some: of its calls in a step, in order, which are CONSTANT or TWICE, the others 0. Where
    nearly all ops of a model that only infers are constant, a test of its speed gives it one input again and again:
    then only its `own` tensors count as unchanged.

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
    touched = {storage for op in ops for storage in (*op.makes, *op.writes)}
    known = _known(steps, unchanged, touched)
    if own and sum(each == CONSTANT for each in known.values()) > ONE_INPUT * len(steps[-1]):
        known = _known(steps, own, touched)
    found: dict[Key, list[int]] = defaultdict(list)
    for op in steps[-1]:
        found[op.key].append(known.get(op.id, 0))
    return {key: tuple(each) for key, each in found.items() if any(each)}


def _known(steps: list[list[_Op]], unchanged: Sequence[str], touched: set[int]) -> dict[int, int]:
    """CONSTANT or TWICE by op of the last step."""
    values = _Values(frozenset(unchanged), touched)
    for step in steps:
        values.step(step)
    return values.known


class _Values:
    """Value numbering: equal ops of equal values give an equal value, whichever tensors hold it.

    What a storage holds has a number; it changes with every op that writes there. Of a storage that no op has made or
    written, the number stays where its tensor is one of `unchanged`; else nobody knows what it holds.
    """

    def __init__(self, unchanged: frozenset[str], touched: set[int]) -> None:
        self.known: dict[int, int] = {}
        """CONSTANT or TWICE by op, of the last step."""
        self._unchanged, self._touched = unchanged, touched
        self._held: dict[int, Any] = {}
        self._writers: dict[int, list[_Op]] = defaultdict(list)
        self._value: dict[int, Any] = {}
        self._numbers = count()
        self._before: set[Any] = set()
        self._now: set[Any] = set()

    def step(self, ops: list[_Op]) -> None:
        """Number one more step."""
        self._before |= self._now
        self._now, self.known = set(), {}
        opened: dict[Any, list[_Op]] = defaultdict(list)
        for op in ops:
            stack = opened[op.thread]
            while stack and stack[-1].id != op.parent:
                self._end(stack.pop())
            if stack and stack[-1].is_op:  # memory that is its caller's alone is free, and another's, afterwards
                op.writes &= {each.storage for each in (*stack[-1].reads, *stack[-1].gives)}
            self._begin(op, self.known.get(stack[-1].id, 0) if stack else 0)
            stack.append(op)
        for stack in opened.values():
            while stack:
                self._end(stack.pop())

    def _begin(self, op: _Op, caller: int) -> None:
        """Number what an op computes, by what it finds before any op that it calls has written. What its `caller` is,
        CONSTANT or TWICE, it is too."""
        read = tuple(self._content(each) for each in op.reads)
        self._value[op.id] = value = hash((op.key, op.scalars, read)) if op.may else self._new()
        if value in self._before:
            self.known[op.id] = CONSTANT
        elif value in self._now:
            self.known[op.id] = TWICE
        elif caller:
            self.known[op.id] = caller
        for storage in op.makes:
            self._writers[storage] = []

    def _end(self, op: _Op) -> None:
        value, known = self._value.pop(op.id), op.id in self.known
        self._now.add(value)
        for number, storage in enumerate(dict.fromkeys((*op.makes, *sorted(op.writes)))):
            self._held[storage] = (value, number)
            if known:
                self._writers[storage].append(op)
            else:
                for writer in self._writers.pop(storage, ()):
                    self.known.pop(writer.id, None)

    def _new(self) -> Any:
        return "new", next(self._numbers)

    def _content(self, tensor: _Tensor) -> Any:
        if tensor.kind == NO_TENSOR:
            return None
        if tensor.kind == NUMBER:
            return self._new()
        if tensor.storage in self._held:
            return self._held[tensor.storage], tensor.offset, tensor.kind
        is_root = tensor.storage not in self._touched and tensor.kind in self._unchanged
        return tensor if is_root else self._new()


def tensor_shapes(shapes: Any) -> tuple[Any, ...]:
    """Return the shapes of tensors in nested lists of shapes; scalars have none."""
    if shapes and all(type(each) is int for each in shapes):
        return (tuple(shapes),)
    return tuple(shape for each in shapes if isinstance(each, (list, tuple)) for shape in tensor_shapes(each))


def _tensors(values: Sequence[Any], shapes: Sequence[Any], strides: Sequence[Any]) -> Iterator[_Tensor]:
    """The tensors among values: [id, storage, offset, elements, bytes of one, device], alone or in lists."""
    for at, value in enumerate(values):
        if not isinstance(value, list) or not value:
            continue
        shape = shapes[at] if at < len(shapes) and isinstance(shapes[at], list) else []
        stride = strides[at] if at < len(strides) and isinstance(strides[at], list) else []
        if len(value) == 6 and isinstance(value[5], str) and all(type(each) is int for each in value[:5]):
            yield _Tensor(value[1], value[2], f"{shape} {stride} {value[4]}")
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
