"""Does the link carry what its data sheet says, by the transfer alone? For a process group of several ranks' files."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gobrrr import units
from gobrrr.ledger.lateness import Group, SizedTransfer, Told
from gobrrr.machine.links import ABOVE, LARGE, NETWORK, Link, far_below, link_of


def linked(group: Group, told: Sequence[Told]) -> Group:
    """The group with what the best of its large calls says of the link: BRR702, without the waiting that it has there.

    Nothing is judged where the ranks may be on several hosts, or the file of one is missing: what they wait for it
    would count as transfer.
    """
    rated = [one for one in group.sizes if one.bus_rate > 0]
    if not rated:
        return group
    of = {one.source for one in group.waits}
    ranks = [one for one in told if one.source in of]
    links = {link_of(one.device) for one in ranks}
    link = links.pop() if len(links) == 1 and all(one.within_a_host for one in ranks) else None
    large = [one for one in rated if one.size >= LARGE]
    best = max(large or rated, key=lambda one: one.bus_rate)
    whole = len(ranks) == group.size
    slow = link is not None and whole and bool(large) and far_below(link, best.bus_rate)
    return msgspec.structs.replace(group, slow=slow, fits=link is not None and whole, link=_said(best, link))


def _said(one: SizedTransfer, link: Link | None) -> str:
    rate = units.byte_rate(one.bus_rate)
    said = f"over the transfer alone {rate} on the bus at best ({one.kind}s of {units.size(one.size)})"
    if link is None:
        low, high = (units.byte_rate(rate) for rate in NETWORK)
        return f"{said}; what carries it the files do not say: between hosts {low} to {high} per device are usual"
    if one.bus_rate > ABOVE * link.rate:
        return f"{said}, more than the data sheet's {link.name} carries: sizes or ranks are not as the files say"
    return (
        f"{said}, {units.share(one.bus_rate / link.rate)} of {link.name} ({units.byte_rate(link.rate)}, {link.source})"
    )
