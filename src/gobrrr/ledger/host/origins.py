"""To which line an op belongs (a backward op to that of the forward), what encloses it, and whether it ran again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.places import Places
from gobrrr.ledger.model.ledger import PHASES
from gobrrr.recording.trace_files.categories import STEP
from gobrrr.spans import Ints, among

DEEP = 64
"""Names of a chain, of which real ones have a dozen: what nests deeper costs memory with the square of its depth."""


def origins(host: HostOps) -> npt.NDArray[np.int32]:
    """The place each row belongs to: its own; for backward rows that of the forward op that made the node.

    Of the forward ops with a node's number the last one made it: a wrapper, and an op that makes no node, only saw
    which number was next.
    """
    made: dict[int, int] = {}
    found = host.place.tolist()
    inherited = [-1] * len(found)
    rows = zip(host.parent.tolist(), host.phase, host.ops.sequence.tolist(), host.ops.is_backward.tolist(), strict=True)
    for row, (above, phase, sequence, is_backward) in enumerate(rows):
        if phase == "backward":
            source = made.get(sequence, -1) if sequence >= 0 else -1
            inherited[row] = source if source >= 0 else inherited[above] if above >= 0 else -1
            found[row] = inherited[row] if inherited[row] >= 0 else found[row]
        elif sequence >= 0 and not is_backward:
            made[sequence] = found[row]
    return np.array(found, np.int32)


def modules(host: HostOps, places: Places) -> list[str]:
    """The innermost module whose forward each row is part of; of a backward row that of the forward op that made its
    node, where none runs again (checkpoints); '' outside of all modules, and where they were not recorded."""
    runs = [place.module for place in places.places]
    made: dict[int, str] = {}
    found: list[str] = []
    rows = zip(host.parent.tolist(), host.phase, host.ops.sequence.tolist(), host.place.tolist(), strict=True)
    for (above, phase, sequence, place), is_backward in zip(rows, host.ops.is_backward.tolist(), strict=True):
        module = runs[place]
        if phase == "backward" and not module:
            module = made.get(sequence, "") or (found[above] if above >= 0 else "")
        elif sequence >= 0 and (module or not is_backward):
            made[sequence] = module
        found.append(module)
    return found


def _holding(host: HostOps) -> zip[tuple[int, int, int]]:
    """Row, parent and name of the rows that others lie in."""
    rows = np.flatnonzero(np.bincount(host.parent[host.parent >= 0], minlength=len(host)))
    return zip(rows.tolist(), host.parent[rows].tolist(), host.ops.name[rows].tolist(), strict=True)


def chains(host: HostOps) -> tuple[Ints, list[tuple[str, ...]]]:
    """Names of the outermost ops and annotations that enclose each row, DEEP at most; which step it was is not told:
    the number of each row's chain, and the chains."""
    found: list[tuple[str, ...]] = [()]
    known: dict[tuple[int, str], int] = {}
    plain = ["" if STEP.fullmatch(name) else name for name in host.names]
    inside = [0] * (len(host) + 1)  # the chain of what lies in each row, and in none
    for row, above, name in _holding(host):
        key = (inside[above], plain[name])
        number = known.get(key)
        if number is None:
            number, chain = key[0], found[key[0]]
            if plain[name] and len(chain) < DEEP:
                number = len(found)
                found.append((*chain, plain[name]))
            known[key] = number
        inside[row] = number
    return np.array(inside, np.int64)[host.parent], found


MAKING = tuple(f"aten::{name}" for name in ("empty", "zeros", "ones", "full", "rand", "arange", "scalar_tensor"))
"""Names of ops that make a tensor of no other's values begin so: they carry no number, whoever calls them."""


# Forward ops that ran again in backward, because their activations were not kept (activation checkpointing).


def recomputed(host: HostOps) -> npt.NDArray[np.bool_]:
    """Rows of ops that ran in backward with gradients on: torch then counts nodes, and they carry a sequence number,
    as nodes themselves do (those name the forward's thread). Where every op that a node itself calls does, the program
    asked this pass for gradients of gradients (create_graph, as torch.func does) and nothing was computed again: what
    lies deeper carries none in either case. A step may have passes of both kinds, so each node is asked for itself.
    """
    ops = host.ops
    within = host.is_op & (host.phases == PHASES.index("backward")) & ~host.begin_with(("autograd::",))
    node = _outermost_nodes(host)
    of_node = (host.parent >= 0) & (ops.forward_thread[host.parent] > 0)
    plain = within & (ops.sequence < 0) & of_node & ~host.begin_with(MAKING)
    counting = within & (ops.sequence >= 0) & (ops.forward_thread <= 0) & (node >= 0)
    again: npt.NDArray[np.bool_] = counting & among(node, node[plain])
    return again


def _outermost_nodes(host: HostOps) -> npt.NDArray[np.int64]:
    """Row of the outermost node that each row is or lies in, -1 for none: a checkpoint of the reentrant kind runs the
    nodes of its block inside its own."""
    found = np.where(host.ops.forward_thread > 0, np.arange(len(host)), -1)
    inside = [*found.tolist(), -1]
    for row, above, _ in _holding(host):
        if inside[above] >= 0:
            inside[row] = inside[above]
    around = np.array(inside, np.int64)[host.parent]
    return np.where(around >= 0, around, found)
