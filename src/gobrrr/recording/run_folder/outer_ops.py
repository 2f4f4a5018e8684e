"""The outermost ops of a step by the dataflow window's file, and which annotation of torch's each of them lies in."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.recording.run_folder.dataflow_file import Op

ENGINE, OPTIMIZER, LOADER = "autograd::engine", "Optimizer.step#", "enumerate(DataLoader)"
"""How torch's annotations of a node of backward, of an update and of a batch begin."""


class Step:
    """The outermost ops of a step, each with all that it calls."""

    def __init__(self, every: Sequence[Op]) -> None:
        self.every = every
        self.inside: dict[int, list[int]] = {}
        """Ids of an outermost op, and of what it calls, by the op's own."""
        self.makes: dict[int, set[int]] = {}
        """The storages that they make: backward reads some that the outermost one does not give."""
        self._below: dict[str, set[int]] = {ENGINE: set(), OPTIMIZER: set(), LOADER: set()}
        owner: dict[int, int] = {}
        for op in every:
            if op.parent in owner or op.is_op:
                owner[op.id] = owner.get(op.parent, op.id)
                self.inside.setdefault(owner[op.id], []).append(op.id)
                self.makes.setdefault(owner[op.id], set()).update(op.makes)
            for word, found in self._below.items():
                if op.parent in found or op.name.startswith(word):
                    found.add(op.id)
        self.ops = [op for op in every if op.id in self.inside]

    def within(self, op: Op, *words: str) -> bool:
        """Whether an annotation that begins so is around it."""
        return any(op.id in self._below[word] for word in words)

    def made_but(self, *words: str) -> set[int]:
        """Return the storages that its ops made, but for those that made them in such annotations."""
        return {storage for op in self.every if not self.within(op, *words) for storage in op.makes}

    def read_before_made(self, but: tuple[str, ...] = ()) -> set[int]:
        """Return the storages that ops read and none of the step has made before; `but`: not by those in there."""
        made: set[int] = set()
        found: set[int] = set()
        for op in self.every:
            if op.id in self.inside and not self.within(op, *but):
                found |= op.values - made
            made.update(op.makes)
        return found
