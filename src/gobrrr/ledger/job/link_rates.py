"""Does the link carry what its data sheet says, by the transfer alone? For a process group of several ranks' files."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gobrrr import units
from gobrrr.ledger.job.lateness import Group, SizedTransfer, Told
from gobrrr.machine.model.links import LARGE, NETWORK, Link, far_below, link_of


def linked(group: Group, told: Sequence[Told]) -> Group:
    """The group with what the best of its large calls says of the link: BRR702, without the waiting that it has there.

    Nothing is judged where the ranks may be on several hosts, or the file of one is missing: what they wait for it
    would count as transfer. A rate that no link of the device carries is taken away.
    """
    of = {one.source for one in group.waits}
    ranks = [one for one in told if one.source in of]
    links = {link_of(one.device) for one in ranks}
    link = links.pop() if len(links) == 1 else None
    if link is not None and not all(link.carries(one.bus_rate) for one in group.sizes):
        why = f"sizes or ranks of the calls are not as the files say: {link.name} does not carry so much"
        return replace(group, sizes=tuple(replace(one, bus_rate=0.0) for one in group.sizes), link=why)
    rated = [one for one in group.sizes if one.bus_rate > 0]
    if not rated:
        return group
    near = link if all(one.within_a_host for one in ranks) else None
    large = [one for one in rated if one.size >= LARGE]
    best = max(large or rated, key=lambda one: one.bus_rate)
    whole = near is not None and len(ranks) == group.size
    slow = near is not None and whole and bool(large) and far_below(near, best.bus_rate)
    return replace(group, slow=slow, fits=whole, link=_said(best, near))


def _said(one: SizedTransfer, link: Link | None) -> str:
    rate = units.byte_rate(one.bus_rate)
    said = f"over the transfer alone {rate} on the bus at best ({one.kind}s of {units.size(one.size)})"
    if link is None:
        low, high = (units.byte_rate(rate) for rate in NETWORK)
        return f"{said}; what carries it the files do not say: between hosts {low} to {high} per device are usual"
    return (
        f"{said}, {units.share(one.bus_rate / link.rate)} of {link.name} ({units.byte_rate(link.rate)}, {link.source})"
    )
