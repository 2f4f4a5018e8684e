"""How long would a step be on more ranks? Communication by a model of ring and tree, the slowest of n by what was seen.

    step(n) = step(n0) + exposed(n) - exposed(n0) + slowest(n) - slowest(n0)

of a run on n0 ranks, each with as much work as now. exposed: transfer that no backward pass hides; slowest: by how much
the longest of n own times exceeds the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.ledger.job.collectives import bus_factor

Floats = npt.NDArray[np.float64]
ROUNDS = {"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0, "all-to-all": 1.0}
"""Messages that a ring sends one behind another, per other rank; of other kinds a tree's, per doubling (Thakur et al.,
2005, https://doi.org/10.1177/1094342005051521)."""
TAIL = 0.1
"""Share of the longest own times whose mean excess tells how the slowest of very many grows (proposed)."""
PER_DOUBLING = 0.03
"""Share of the step by which the interval widens for each doubling of ranks beyond those that were seen (proposed; its
misses in benchmarks/scaled.py would settle it)."""
UNBOUND = 1e15
"""Bytes per second where small messages alone were seen."""
SMALL = 64 << 10
"""Bytes up to which a collective is taken for its latency alone (proposed)."""
REACHED = (0.7, 0.9, 1.0)
"""Least, usual and most of a link's stated rate that large messages reach (nccl-tests: 0.7 and more; proposed)."""
MEASURED = (0.9, 1.0, 1.1)
"""The same of a rate that was measured here (proposed)."""


class Network(msgspec.Struct, frozen=True):
    """Link of a rank to the others."""

    rate: float
    """Bytes per second that a rank sends."""
    latency_ns: float
    """Until the first byte of a message is there."""
    source: str = ""
    reached: tuple[float, float, float] = MEASURED
    """Least, usual and most of the rate."""
    is_measured: bool = False
    """The recorded run's own: each of its collectives takes what it took there, and in proportion on more ranks."""


class Planned(msgspec.Struct, frozen=True):
    """Collectives of one kind and size."""

    kind: str
    size: float
    """Bytes, as nccl-tests counts them: the same however many ranks there are."""
    calls: float
    """Per step."""
    transfer_ns: float = 0.0
    """Recorded ns of one call, once all ranks were there; 0 where none was."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded run. Times are ns per step, means over steps and ranks."""

    ranks: int
    steps: int
    step_ns: float
    own_ns: float
    """A rank's own time, without what it waits for others."""
    backward_ns: float
    exposed_ns: float = 0.0
    """Part of the step that is neither the longest own time nor hidden; 0 of one rank."""
    plan: tuple[Planned, ...] = ()
    how: str = ""
    """How the plan was made."""
    spread: tuple[float, ...] = ()
    """Differences of own times from the mean of all ranks in their step, ns, sorted."""
    on_host: bool = False
    """Cores that compute carry the messages as well."""

    @property
    def transfer_ns(self) -> float:
        """Return the recorded transfer per step."""
        return sum((each.calls * each.transfer_ns for each in self.plan), 0.0)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The step on so many ranks, ns: expected, and 95 % of what is thought possible."""

    ranks: int
    step_ns: float
    low_ns: float
    high_ns: float
    transfer_ns: float
    exposed_ns: float
    slowest_ns: float
    """By which the slowest rank is later than the mean."""
    speedup: float
    """Work of so many ranks that wait for nobody."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """`gobrrr scale`: what was seen, by which network, and each number of ranks."""

    schema: str = "gobrrr.scaled/1"
    seen: Seen
    network: Network
    points: tuple[Point, ...] = ()
    doubts: tuple[str, ...] = ()


def transfer_ns(kind: str, size: float, ranks: int, network: Network, reached: float = 1.0) -> float:
    """Return the ns of one collective: a ring's, or of an all-reduce a tree's where that is sooner (latency grows with
    the logarithm of ranks, and each byte goes up and down once)."""
    if ranks < 2:
        return 0.0
    rate = network.rate * reached / 1e9
    straight = _messages(kind, ranks) * network.latency_ns + size * bus_factor(kind, ranks) / rate
    tree = 2 * math.ceil(math.log2(ranks)) * network.latency_ns + 2 * size / rate
    return min(straight, tree) if kind == "all-reduce" else straight


def measured_network(seen: Seen) -> Network | None:
    """Return the network that the recorded transfers show: small messages its latency, the others together its rate,
    since those under way at once share it; None where nothing was transferred."""
    rows = [each for each in seen.plan if each.transfer_ns > 0 and each.size > 0 and each.calls > 0]
    small = [each for each in rows if each.size <= SMALL]
    large = [each for each in rows if each.size > SMALL]
    if not rows or seen.ranks < 2:
        return None

    def taken(those: Sequence[Planned]) -> float:
        return sum(each.calls * each.transfer_ns for each in those)

    def messages(those: Sequence[Planned]) -> float:
        return sum(each.calls * _messages(each.kind, seen.ranks) for each in those)

    latency = taken(small) / messages(small) if small else 0.0
    left = taken(large) - latency * messages(large)
    if left < 0.5 * taken(large):  # they would be faster than their bytes: other messages were in the way
        latency, left = 0.0, taken(large)
    sent = sum(each.calls * each.size * bus_factor(each.kind, seen.ranks) for each in large)
    rate = sent / left * 1e9 if large else UNBOUND
    return Network(rate, latency, "as this run's collectives show", MEASURED, True)


def _messages(kind: str, ranks: int) -> float:
    """Return how many messages a collective sends one behind another: a ring's, or of other kinds a tree's."""
    return ROUNDS[kind] * (ranks - 1) if kind in ROUNDS else math.ceil(math.log2(ranks))


def exposed_ns(seen: Seen, calls: Sequence[float]) -> tuple[float, float, float]:
    """Return (least, usual, most) ns per step that nothing hides of these transfers, ns per step each in the plan's
    order: a backward pass hides as much as in the recorded run, or, where that was of one rank, as much as gradients
    that come evenly over it allow; cores that compute meanwhile may hide none."""
    whole, sent = sum(calls), [each.calls * each.size for each in seen.plan]
    if not whole or not sum(sent):
        return whole, whole, whole
    ready, done = 0.0, 0.0
    for ns, size, each in zip(calls, sent, seen.plan, strict=True):
        pieces, more = max(1.0, round(each.calls)), seen.backward_ns * size / sum(sent)
        done = max(done + ns, ready + more / pieces + ns, ready + more + ns / pieces)  # none, the first, the last waits
        ready += more
    least = max(0.0, done - seen.backward_ns)
    if not seen.transfer_ns:
        return least, (least + whole) / 2 if seen.on_host else least, whole
    hidden = min(max(0.0, 1 - seen.exposed_ns / seen.transfer_ns) * whole, whole - least)
    return whole - hidden if seen.on_host else least, whole - hidden, whole - hidden


def slowest_ns(spread: Sequence[float], ranks: int) -> float:
    """Return by how much the longest of so many own times exceeds the mean, on average, of draws like these; beyond
    what was seen the tail is taken to be exponential."""
    values = np.asarray(spread, float)
    num = len(values)
    if num < 2 or ranks < 2:
        return 0.0
    below = (np.arange(num + 1) / num) ** ranks
    found = float((values * np.diff(below)).sum())
    top = max(2, int(TAIL * num))
    if ranks * top / num > top:  # the slowest is most likely longer than all that were seen
        edge = values[-top - 1] if num > top else values[0]
        excess = float((values[-top:] - edge).mean())
        found = max(found, float(edge) + excess * (math.log(ranks * top / num) + np.euler_gamma))
    return max(0.0, found)


def forecast(seen: Seen, network: Network, ranks: Sequence[int], doubts: Sequence[str] = ()) -> Forecast:
    """Return the step on each of these numbers of ranks."""
    points = tuple(_point(seen, network, each) for each in ranks)
    return Forecast(seen=seen, network=network, points=points, doubts=tuple(doubts))


def _point(seen: Seen, network: Network, ranks: int) -> Point:
    _, before, _ = exposed_ns(seen, [each.calls * each.transfer_ns for each in seen.plan])
    beside = max(0.0, seen.exposed_ns - before)  # what sending takes of the host, and what no model knows
    known = min(1.0, seen.exposed_ns / before) if network.is_measured and before else 1.0  # a profiler lengthens them
    slow, usual, fast = (exposed_ns(seen, _calls(seen, network, ranks, reached)) for reached in network.reached)
    meets = bool(seen.plan)  # ranks without a collective wait for nobody
    grown = slowest_ns(seen.spread, ranks) - slowest_ns(seen.spread, seen.ranks) if meets else 0.0
    exposed = known * usual[1] + beside if ranks > 1 else 0.0
    step = seen.step_ns + exposed - seen.exposed_ns + grown
    apart = PER_DOUBLING * max(abs(math.log2(ranks / seen.ranks)), not network.is_measured) * step
    least, most = step - (usual[1] - fast[0]) - max(0.0, grown), step + slow[2] - usual[1] + max(0.0, grown)
    if ranks == seen.ranks and network.is_measured:
        least = most = step
    return Point(
        ranks=ranks, step_ns=step, low_ns=max(min(seen.own_ns, step), least - apart), high_ns=most + apart,
        transfer_ns=sum(_calls(seen, network, ranks, network.reached[1])), exposed_ns=exposed,
        slowest_ns=slowest_ns(seen.spread, ranks) if meets else 0.0,
        speedup=ranks * seen.own_ns / step if step else 0.0,
    )  # fmt: skip


def _calls(seen: Seen, network: Network, ranks: int, reached: float) -> list[float]:
    found = []
    for each in seen.plan:
        ns = transfer_ns(each.kind, each.size, ranks, network, reached)
        here = transfer_ns(each.kind, each.size, seen.ranks, network)
        if network.is_measured:
            ns = each.transfer_ns * ns / here if here else each.transfer_ns
        found.append(each.calls * ns)
    return found
