"""Which samples took longest to make, of those that were seen while they were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from gobrrr.ledger.model.ledger import SampleTime
from gobrrr.recording.run_folder.run import Samples

MOST = 8
"""That are kept: a person looks at a few."""
SECOND = 1_000_000_000  # ns in a second


def slow_samples(threads: Iterable[Samples]) -> tuple[SampleTime, ...]:
    """The longest by their index, each once, the longest first. What was seen once may have taken any time."""
    longest: dict[int, SampleTime] = {}
    for samples in threads:
        for found in _made(samples):
            if found.ns > (longest[found.index].ns if found.index in longest else 0.0):
                longest[found.index] = found
    return tuple(sorted(longest.values(), key=lambda each: (-each.ns, each.index))[:MOST])


def _made(samples: Samples) -> Iterator[SampleTime]:
    """Each time that a sample was seen being made twice or more in a row, from first to last and one interval: half of
    it before, half after."""
    for index, rows in groupby(range(len(samples.index)), key=lambda row: samples.index[row]):
        seen = list(rows)
        if index < 0 or len(seen) < 2:
            continue
        first, last = seen[0], seen[-1]
        known = min(samples.cpu[first], samples.cpu[last]) >= 0
        spent = samples.t[last] - samples.t[first]
        cpu = min(spent, samples.cpu[last] - samples.cpu[first]) if known else None
        yield SampleTime(index, spent + samples.interval * SECOND, float(cpu) if cpu is not None else None)
