"""A Machine's figures by their keys, as doubts, bounds and new measurements name them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gobrrr.machine.measure.sampling import MAX_SPREAD
from gobrrr.machine.model.doubts import FEW_ROUNDS, doubts_of
from gobrrr.machine.model.machine import Machine, Measured


def figures(machine: Machine) -> dict[str, Measured]:
    """The host's figures: cores, dispatch, page, matmul/<1 or all>/<dtype>, copy/<threads>/<bytes>."""
    found = {"cores": machine.effective_cores, "dispatch": machine.dispatch, "page": machine.fresh_page}
    for threads, rates in machine.matmul.items():
        if threads == "1" or machine.threads > 1:
            found |= {f"matmul/{threads}/{dtype}": rate for dtype, rate in rates.items()}
    return found | {f"copy/{c.threads}/{c.working_set}": c.rate for c in machine.copy}


def doubtful(machine: Machine) -> list[str]:
    """Keys of the figures that vary too widely, or rest on too few samples, to be a ceiling."""
    known = figures(machine).items()
    return [key for key, each in known if 0 < each.count < FEW_ROUNDS or each.spread > MAX_SPREAD]


def replaced(machine: Machine, fresh: Mapping[str, Measured]) -> Machine:
    """The machine with these figures instead of its own."""
    known = figures(machine) | dict(fresh)
    matmul = {
        threads: {dtype: known.get(f"matmul/{threads}/{dtype}", rate) for dtype, rate in rates.items()}
        for threads, rates in machine.matmul.items()
    }
    if machine.threads <= 1 and "1" in matmul:
        matmul["all"] = matmul["1"]
    copies = tuple(msgspec.structs.replace(c, rate=known[f"copy/{c.threads}/{c.working_set}"]) for c in machine.copy)
    return msgspec.structs.replace(
        machine, effective_cores=known["cores"], dispatch=known["dispatch"], fresh_page=known["page"], matmul=matmul,
        copy=copies,
    )  # fmt: skip


def merged(machine: Machine, fresh: Machine) -> Machine:
    """Doubtful figures of `machine` with those of `fresh` where these are the steadier; doubts and load follow."""
    old, new = figures(machine), figures(fresh)
    better = {k: new[k] for k in doubtful(machine) if k in new and new[k].count and _steadier(new[k], old[k])}
    found = replaced(machine, better)
    doubts = doubts_of({key: msgspec.to_builtins(each) for key, each in figures(found).items()}, found.memory_bytes)
    return msgspec.structs.replace(found, doubts=doubts, other_load=fresh.other_load, repeats=machine.repeats + 1)


def _steadier(new: Measured, old: Measured) -> bool:
    return new.count >= FEW_ROUNDS > old.count or new.spread <= old.spread
