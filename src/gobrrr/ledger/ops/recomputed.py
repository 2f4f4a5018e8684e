"""Which forward ops ran again in backward, because their activations were not kept (activation checkpointing)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.host.host_ops import HostOps

MAKING = tuple(f"aten::{name}" for name in ("empty", "zeros", "ones", "full", "rand", "arange", "scalar_tensor"))
"""Names of ops that make a tensor of no other's values begin so: they carry no number, whoever calls them."""


def recomputed(host: HostOps) -> npt.NDArray[np.bool_]:
    """Rows of ops that ran in backward with gradients on: torch then counts nodes, and they carry a sequence number,
    as nodes themselves do (those name the forward's thread). Where every op that a node itself calls does, the program
    asked this pass for gradients of gradients (create_graph, as torch.func does) and nothing was computed again: what
    lies deeper carries none in either case. A step may have passes of both kinds, so each node is asked for itself.
    """
    ops = host.ops
    within = host.is_op & (np.array(host.phase) == "backward") & ~_named(host, ("autograd::",))
    node = _outermost_nodes(host)
    of_node = (host.parent >= 0) & (ops.forward_thread[host.parent] > 0)
    plain = within & (ops.sequence < 0) & of_node & ~_named(host, MAKING)
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


def _named(host: HostOps, starts: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    hits = np.array([name.startswith(starts) for name in host.names], bool)
    return hits[host.ops.name] if len(host) else np.zeros(0, bool)
