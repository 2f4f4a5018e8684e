"""To which line an op belongs, what encloses it, and whether it ran again: backward ops go to the line whose forward
made their node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.places import Places
from gobrrr.recording.trace_files.categories import STEP

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


def chains(host: HostOps) -> list[tuple[str, ...]]:
    """Names of the outermost ops and annotations that enclose each row, DEEP at most; which step it was is not told."""
    known: dict[tuple[tuple[str, ...], str], tuple[str, ...]] = {}
    found: list[tuple[str, ...]] = []
    plain = ["" if STEP.fullmatch(name) else name for name in host.names]
    names = [plain[n] for n in host.ops.name.tolist()]
    for above in host.parent.tolist():
        chain: tuple[str, ...] = ()
        if above >= 0:
            told = names[above] and len(found[above]) < DEEP
            key = (found[above], names[above])
            chain = known.setdefault(key, (*found[above], names[above]) if told else found[above])
        found.append(chain)
    return found


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
    within = host.is_op & (np.array(host.phase) == "backward") & ~host.begin_with(("autograd::",))
    node = _outermost_nodes(host)
    of_node = (host.parent >= 0) & (ops.forward_thread[host.parent] > 0)
    plain = within & (ops.sequence < 0) & of_node & ~host.begin_with(MAKING)
    counting = within & (ops.sequence >= 0) & (ops.forward_thread <= 0) & (node >= 0)
    again: npt.NDArray[np.bool_] = counting & np.isin(node, node[plain])
    return again


def _outermost_nodes(host: HostOps) -> npt.NDArray[np.int64]:
    """Row of the outermost node that each row is or lies in, -1 for none: a checkpoint of the reentrant kind runs the
    nodes of its block inside its own."""
    found: list[int] = []
    nodes = host.ops.forward_thread > 0
    for row, (parent, is_node) in enumerate(zip(host.parent.tolist(), nodes.tolist(), strict=True)):
        above = found[parent] if parent >= 0 else -1
        found.append(row if above < 0 and is_node else above)
    return np.array(found, np.int64)
