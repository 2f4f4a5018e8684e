"""Which forward ops ran again in backward, because their activations were not kept (activation checkpointing)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.hostops import HostOps


def recomputed(host: HostOps) -> npt.NDArray[np.bool_]:
    """Rows of ops that ran in backward with gradients on: torch then counts nodes, and they carry a sequence number,
    as nodes themselves do (those name the forward's thread). Where every op that a node itself calls does, the program
    asked for gradients of gradients (create_graph, as torch.func does) and nothing was computed again: what lies deeper
    carries none in either case.
    """
    ops = host.ops
    within = host.is_op & (np.array(host.phase) == "backward") & ~_named(host, "autograd::")
    counting = within & (ops.sequence >= 0) & (ops.forward_thread <= 0)
    of_node = (host.parent >= 0) & (ops.forward_thread[host.parent] > 0)
    plain = within & (ops.sequence < 0) & of_node
    return counting if plain.any() else np.zeros(len(host), bool)


def _named(host: HostOps, start: str) -> npt.NDArray[np.bool_]:
    hits = np.array([name.startswith(start) for name in host.names], bool)
    return hits[host.ops.name] if len(host) else np.zeros(0, bool)
