"""Which ops of a step compute what an earlier step, or this one, has computed: by the dataflow window's file.

A tensor is the same where it was there before the steps, lies in memory that none of them writes or allocates, and was
found unchanged after them; or where an op with the same scalars makes it of the same ones. An op whose result is
written later by one that differs (a buffer of zeros) does not count, nor one that draws random numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Any

from gobrrr.recording.run_folder.dataflow_file import CONSTANT, NO_TENSOR, NUMBER, TWICE, Op, Tensor

ONE_INPUT = 0.7
"""Share of a step's ops that are constant, above which its input must be (proposed)."""


def repeated_ops(
    steps: Sequence[list[Op]], rest: Sequence[Op], unchanged: Sequence[str], own: Sequence[str] = ()
) -> dict[int, int]:
    """CONSTANT or TWICE by op of the last step, for those that are; `rest`: ops that came after it.

    Where nearly all ops of a model that only infers are constant, a test of its speed gives it one input again and
    again: then only its `own` tensors count as unchanged.
    """
    touched = {storage for ops in (*steps, rest) for op in ops for storage in (*op.makes, *op.writes)}
    known = _known(steps, unchanged, touched)
    if own and sum(each == CONSTANT for each in known.values()) > ONE_INPUT * len(steps[-1]):
        known = _known(steps, own, touched)
    return known


def _known(steps: Sequence[list[Op]], unchanged: Sequence[str], touched: set[int]) -> dict[int, int]:
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
        self._writers: dict[int, list[Op]] = defaultdict(list)
        self._value: dict[int, Any] = {}
        self._numbers = count()
        self._before: set[Any] = set()
        self._now: set[Any] = set()

    def step(self, ops: list[Op]) -> None:
        """Number one more step."""
        self._before |= self._now
        self._now, self.known = set(), {}
        opened: dict[Any, list[Op]] = defaultdict(list)
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

    def _begin(self, op: Op, caller: int) -> None:
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

    def _end(self, op: Op) -> None:
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

    def _content(self, tensor: Tensor) -> Any:
        if tensor.kind == NO_TENSOR:
            return None
        if tensor.kind == NUMBER:
            return self._new()
        if tensor.storage in self._held:
            return self._held[tensor.storage], tensor.offset, tensor.kind
        is_root = tensor.storage not in self._touched and tensor.kind in self._unchanged
        return tensor if is_root else self._new()
