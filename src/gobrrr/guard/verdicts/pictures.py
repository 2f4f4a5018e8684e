"""Pictures whose pixels may differ a little, because the user has consented to it: by how much they do. Pure.

Index, order, number, shape, dtype and all that is not a picture (labels) stay equal bit for bit. A level is 1/255 of
what the baseline's pixels of that channel range over, where they are no bytes: a picture that was normalised ranges
over 255 levels at most, so that differences are never taken for smaller than they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gobrrr.guard.model.observation import Epoch, Given, Observation, Pixels
from gobrrr.guard.model.tensor_digest import Seen, cosine
from gobrrr.guard.model.verdict import Check

LEVELS = 255.0  # steps from the darkest to the brightest value of 8 bits
SAME_DIRECTION, SAME_SCALE = 0.9, 1.25
"""Least cosine, and most ratio of norms, of outputs and first gradients: as closeness asks of a lower precision."""


class Near(NamedTuple):
    """Change of pixels that a remedy declares and the user consents to, in levels of 255."""

    mean: float
    """Most by which a picture may differ on average."""
    share: float
    """Most of all pixels that may differ by more than `beyond`."""
    beyond: float

    def __str__(self) -> str:
        return f"{self.mean:g} per picture, {self.share:.2%} of pixels by more than {self.beyond:g}"


_Levels = dict[tuple[int, str, int], npt.NDArray[np.float64]]


@dataclass
class Apart:
    """How far pictures are apart, all together."""

    total: float = 0.0
    num: int = 0
    num_beyond: int = 0
    most: float = 0.0
    worst: float = 0.0
    """The mean of the picture that differs most."""

    @property
    def mean(self) -> float:
        return self.total / self.num if self.num else 0.0

    @property
    def share(self) -> float:
        return self.num_beyond / self.num if self.num else 0.0

    def add(self, gap: npt.NDArray[np.float64], near: Near) -> npt.NDArray[np.float64]:
        """Rows x places x channels, in levels; gives the mean of each row."""
        means: npt.NDArray[np.float64] = gap.mean((1, 2))
        self.total, self.num = self.total + float(gap.sum()), self.num + gap.size
        self.num_beyond += int((gap > near.beyond).sum())
        self.most, self.worst = max(self.most, float(gap.max())), max(self.worst, float(means.max()))
        return means


def checks(
    baseline: Observation, candidate: Observation, near: Near, evidence: dict[str, float | None]
) -> Iterator[Check]:
    """Pictures as models are given them, batches as loaders hand them out (with their labels), and what models make of
    them where both begin alike."""
    yield _compared("data", _calls(baseline), _calls(candidate), near, evidence)
    drawn = [[(f"batch {n + 1}", each) for n, each in enumerate(run.drawn)] for run in (baseline, candidate)]
    if baseline.complete and candidate.complete and len(drawn[0]) != len(drawn[1]):
        said = f"{len(drawn[1])} batches were drawn, the baseline draws {len(drawn[0])}"
        yield Check("batches", "wrong", said)
    elif not drawn[0] or not drawn[1]:
        yield Check("batches", "unverified", "no loader's batches were seen: labels are not known to be the same")
    else:
        found = _compared("batches", drawn[0], drawn[1], near, {})
        yield Check(found.name, found.verdict) if found.verdict == "bounded" else found  # as the data, told once
    yield from _begun_alike(baseline, candidate)


def other_item(b: Epoch, c: Epoch, index: str, near: Near) -> str:
    """How a fetched sample is another than the baseline's, beyond what was consented to; or nothing."""
    apart = Apart()
    levels = _levels(b.given.values())
    ours, theirs = b.given[index], c.given[index]
    if ours.rest != theirs.rest:
        return f"sample {index} of {b.dataset} has another label, shape or dtype"
    _gaps(ours, theirs, levels, near, apart)
    return _beyond(apart, near, f"sample {index} of {b.dataset}")


def other_batch(b: Epoch, c: Epoch, near: Near) -> str:
    """The same of fetched samples that were collated."""
    if b.batch_given is None or c.batch_given is None:
        return f"the same samples of {b.dataset} make another batch" if b.batch != c.batch else ""
    apart = Apart()
    if b.batch_given.rest != c.batch_given.rest:
        return f"the same samples of {b.dataset} make a batch of other labels, shapes or dtypes"
    _gaps(b.batch_given, c.batch_given, _levels([b.batch_given]), near, apart)
    return _beyond(apart, near, f"the same samples of {b.dataset} make another batch: one")


def _beyond(apart: Apart, near: Near, what: str) -> str:
    if not apart.worst <= near.mean:
        return f"{what} is {apart.worst:.3g} of 255 away on average, {near.mean:g} is consented to"
    if not apart.share <= near.share:
        return (
            f"{what} has {apart.share:.2%} of its pixels more than {near.beyond:g} of 255 away, {near.share:.2%} is "
            "consented to"
        )
    return ""


_Named = Sequence[tuple[str, Given | None]]


def _calls(run: Observation) -> list[tuple[str, Given | None]]:
    return [
        (f"step {n + 1} ({call.model})", call.data.given) for n, step in enumerate(run.steps) for call in step.calls
    ]


def _compared(name: str, ours: _Named, theirs: _Named, near: Near, evidence: dict[str, float | None]) -> Check:
    levels, apart = _levels([given for _, given in ours if given is not None]), Apart()
    for (where, b), (_, c) in zip(ours, theirs, strict=False):
        if b is None or c is None:
            return Check(name, "unverified", f"the pixels of {where} were not kept")
        if b.rest != c.rest:
            return Check(
                name, "wrong", f"{where} has other labels, shapes or dtypes, or other data beside its pictures"
            )
        for row, mean in enumerate(_gaps(b, c, levels, near, apart)):
            if not mean <= near.mean:
                said = f"picture {row + 1} of {where} is {mean:.3g} of 255 away from the baseline's on average"
                return Check(name, "wrong", f"{said}, {near.mean:g} is consented to")
    if not apart.share <= near.share:
        said = f"{apart.share:.2%} of the pixels are more than {near.beyond:g} of 255 away from the baseline's"
        return Check(name, "wrong", f"{said}, {near.share:.2%} is consented to")
    evidence |= {"pixels_mean_of_255": apart.mean, "pixels_share_beyond": apart.share, "pixels_most_of_255": apart.most}
    if not apart.total:
        return Check(name, "exact")
    measured = (
        f"pixels differ by {apart.mean:.2g} of 255 on average ({apart.worst:.2g} in the worst picture), "
        f"{apart.share:.2%} by more than {near.beyond:g}, {apart.most:.0f} at most"
    )
    return Check(name, "bounded", f"{measured}; consented to: {near}")


def _levels(baseline: Iterable[Given]) -> _Levels:
    """Return the size of one level of 255, by the picture's place in its batch, its dtype and its channels."""
    lowest: _Levels = {}
    highest: _Levels = {}
    for given in baseline:
        for key, pixels in _keyed(given):
            values = _values(pixels).reshape(-1, pixels.kept[2])
            low, high = values.min(0), values.max(0)
            lowest[key] = np.minimum(low, lowest.get(key, low))
            highest[key] = np.maximum(high, highest.get(key, high))
    return {
        key: np.ones_like(low) if key[1] == "uint8" else (highest[key] - low) / LEVELS for key, low in lowest.items()
    }


def _keyed(given: Given) -> Iterator[tuple[tuple[int, str, int], Pixels]]:
    for place, pixels in enumerate(given.pixels):
        yield (place, pixels.dtype, pixels.kept[2]), pixels


def _values(pixels: Pixels) -> npt.NDArray[np.float64]:
    return np.frombuffer(pixels.values, np.float32).reshape(pixels.kept).astype(np.float64)


def _gaps(b: Given, c: Given, levels: _Levels, near: Near, apart: Apart) -> list[float]:
    """The means of all rows of all pictures; what is not finite in one of two is infinitely far."""
    found: list[float] = []
    for (key, ours), (_, theirs) in zip(_keyed(b), _keyed(c), strict=True):
        x, y = _values(ours), _values(theirs)
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.where(x == y, 0.0, np.abs(x - y) / levels[key])
        found += apart.add(np.nan_to_num(gap, nan=math.inf, posinf=math.inf), near).tolist()
    return found


def _begun_alike(baseline: Observation, candidate: Observation) -> Iterator[Check]:
    """Check outputs and gradients of the first step, or of all where nothing is trained: slightly different pixels turn
    neither around."""
    pairs = list(zip(baseline.steps, candidate.steps, strict=False))
    for b, c in pairs[:1] if baseline.training else pairs:
        outputs = zip(*([s for call in run.calls for s in call.outputs or ()] for run in (b, c)), strict=False)
        gradients = [(g, (c.gradients or {}).get(n)) for n, g in (b.gradients or {}).items() if g is not None]
        for name, found in (("outputs", list(outputs)), ("gradients", gradients)):
            if reason := _turned([(x, y) for x, y in found if y is not None]):
                yield Check(name, "changed", reason)
                return


def _turned(pairs: Sequence[tuple[Seen, Seen]]) -> str:
    floats = [(x, y) for x, y in pairs if x.dtype.startswith(("float", "bfloat"))]
    if any(x.shape != y.shape for x, y in floats):
        return "they have other shapes than the baseline's"
    norms = [math.hypot(*side) for side in zip(*((x.norm, y.norm) for x, y in floats), strict=True)]
    if not norms or not all(norms):
        return ""
    along = sum(cosine(x, y) * x.norm * y.norm for x, y in floats) / (norms[0] * norms[1])
    if along >= SAME_DIRECTION and max(norms) <= SAME_SCALE * min(norms):
        return ""
    return f"their norm is {norms[1] / norms[0]:.3g} times the baseline's, cosine {along:.3f}"
