"""Batches of sequences of like length, in an order that stays near to a random one."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gobrrr.data.packing.pack import Bins, check_rank, integers, multiple
from gobrrr.errors import GobrrrError

MEGA_BATCH = 50
"""Batches that are sorted together, as Hugging Face's group_by_length sorts them."""


class BucketBatchSampler:
    """For `DataLoader(dataset, batch_sampler=...)`: every index once per epoch, batches of like length.

    An epoch is a random permutation, cut into mega-batches of `mega_batch` batches each; one of these is sorted by
    length and cut into batches, and the batches of all are shuffled. A batch has `batch_size` sequences, or as many as
    fit into `max_tokens` with their padding (rows times the longest), or both. `drop_last` leaves out, at random, what
    makes no whole batch. Every iteration begins the next epoch; `set_epoch` says which (of several processes: always).
    """

    def __init__(
        self, lengths: ArrayLike, batch_size: int | None = None, *, max_tokens: int | None = None,
        mega_batch: int = MEGA_BATCH, seed: int = 0, drop_last: bool = False,
    ) -> None:  # fmt: skip
        self._sizes = _checked(lengths, batch_size, max_tokens, mega_batch)
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.mega_batch = mega_batch
        self.seed = seed
        self.drop_last = drop_last
        self._ranks, self._rank = 1, 0
        self._next, self._start = 0, 0  # the epoch that the next iteration begins, and after how many batches
        self._epoch: int | None = None  # the one that is under way, or was last
        self._taken = 0
        self._cache: tuple[int, Bins] | None = None

    def __iter__(self) -> Iterator[list[int]]:
        # A generator on purpose: the epoch begins with the first batch. A DataLoader with workers calls iter() twice.
        self._epoch, self._taken = self._next, self._start
        self._next, self._start = self._epoch + 1, 0
        batches = self.batches(self._epoch)
        while self._taken < len(batches):
            self._taken += 1
            yield batches[self._taken - 1]

    def __len__(self) -> int:
        return len(self.batches(self._next if self._epoch is None else self._epoch))

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration begins; the one that `load_state_dict` brought goes on where it was."""
        if epoch != self._next:
            self._next, self._start = epoch, 0
        self._epoch = None

    def state_dict(self, batches_done: int | None = None) -> dict[str, int]:
        """Where the epoch stands, as plain integers. Workers draw batches ahead: then say how many batches of this
        epoch the training has had, or as many are lost as were under way."""
        epoch, done = (self._next, self._start) if self._epoch is None else (self._epoch, self._taken)
        done = done if batches_done is None else batches_done
        if done >= len(self.batches(epoch)):
            epoch, done = epoch + 1, 0
        return {"epoch": epoch, "batches_done": done, **self._identity()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """The next iteration gives what is left of that epoch; an error where the batches would be others."""
        for name, value in self._identity().items():
            if state.get(name) != value:
                what = f"the state is of a sampler with {name}={state.get(name)}, this one has {value}"
                raise GobrrrError(what, "resume with the same data set, seed and sizes, or begin anew")
        self._next, self._start, self._epoch = int(state["epoch"]), int(state["batches_done"]), None

    def _identity(self) -> dict[str, int]:
        """Return everything that decides the batches of an epoch."""
        return {
            "lengths_crc32": zlib.crc32(np.ascontiguousarray(self._sizes).tobytes()),
            "batch_size": self.batch_size or 0, "max_tokens": self.max_tokens or 0, "mega_batch": self.mega_batch,
            "seed": self.seed, "drop_last": int(self.drop_last), "num_replicas": self._ranks,
        }  # fmt: skip

    def batches(self, epoch: int) -> Bins:
        """All batches of an epoch, in order: the same for the same arguments, on every machine."""
        if self._cache is None or self._cache[0] != epoch:
            self._cache = epoch, self._drawn(epoch)[self._rank :: self._ranks]
        return self._cache[1]

    def _drawn(self, epoch: int) -> Bins:
        """Draw the batches of all ranks: consecutive ones belong to one step, rank after rank."""
        # The stream of this generator is frozen (NEP 19): a state resumes under any NumPy.
        draw = np.random.RandomState(np.random.MT19937(np.random.SeedSequence([self.seed, epoch])))
        order = draw.permutation(len(self._sizes))
        if self.drop_last and self.batch_size and not self.max_tokens:
            order = order[: len(order) // (self._ranks * self.batch_size) * self._ranks * self.batch_size]
        per_batch = self.batch_size or max(1, int((self.max_tokens or 0) // max(1.0, self._sizes.mean())))
        chunk = self.mega_batch * per_batch * self._ranks
        order = order[np.lexsort((-self._sizes[order], np.arange(len(order)) // chunk))]
        batches = Bins(order, self._cuts(self._sizes[order], chunk))
        batches = batches[: len(batches) // self._ranks * self._ranks] if self.drop_last else self._even(batches)
        steps = np.arange(len(batches)).reshape(-1, self._ranks)
        # Within a step another rank has the longest batch each time.
        steps = np.take_along_axis(steps, draw.random_sample(steps.shape).argsort(axis=1), axis=1)
        return batches.take(steps[draw.permutation(len(steps))].ravel())

    def _cuts(self, sizes: NDArray[np.int64], chunk: int) -> NDArray[np.int64]:
        """Where the batches of sorted chunks begin and end."""
        if not self.max_tokens:
            return np.append(np.arange(0, len(sizes), self.batch_size), len(sizes))
        cuts, longest = [0], sizes.tolist()
        while cuts[-1] < len(sizes):
            at = cuts[-1]
            rows = min(self.max_tokens // max(1, longest[at]), self.batch_size or len(sizes))
            cuts.append(min(at + rows, (at // chunk + 1) * chunk, len(sizes)))
        return np.array(cuts)

    def _even(self, batches: Bins) -> Bins:
        if len(batches.indices) < len(batches) + -len(batches) % self._ranks:
            what = f"{len(batches.indices)} sequences make no equal number of batches for {self._ranks} ranks"
            raise GobrrrError(what, "drop_last=True leaves out what is over")
        return multiple(batches, self._ranks)


class DistributedBucketBatchSampler(BucketBatchSampler):
    """The batches of one rank: disjoint from the others', equally many, and in each step of like length, so that no
    rank waits long for another. Where the number of batches does not come out even, the largest are halved (no index
    is repeated) or, with `drop_last`, left out. `num_replicas` and `rank` default to those of torch.distributed. Call
    `set_epoch` on every rank."""

    def __init__(
        self, lengths: ArrayLike, batch_size: int | None = None, *, num_replicas: int | None = None,
        rank: int | None = None, max_tokens: int | None = None, mega_batch: int = MEGA_BATCH, seed: int = 0,
        drop_last: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            lengths, batch_size, max_tokens=max_tokens, mega_batch=mega_batch, seed=seed, drop_last=drop_last
        )
        self._ranks, self._rank = _place(num_replicas, rank)


def _place(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    if num_replicas is None or rank is None:
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            what = "torch.distributed is not initialised, and the rank was not given"
            raise GobrrrError(what, "call init_process_group first, or pass num_replicas and rank")
        num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
        rank = dist.get_rank() if rank is None else rank
    check_rank(rank, num_replicas)
    return num_replicas, rank


def _checked(lengths: ArrayLike, batch_size: int | None, max_tokens: int | None, mega_batch: int) -> NDArray[np.int64]:
    for name, value in (("batch_size", batch_size), ("max_tokens", max_tokens), ("mega_batch", mega_batch)):
        if value is not None and value < 1:
            raise GobrrrError(f"{name}={value} is too small", "give 1 or more")
    if batch_size is None and max_tokens is None:
        raise GobrrrError("neither batch_size nor max_tokens is given", "say how large a batch is")
    sizes = integers(np.asarray(lengths), at_least=1)
    if sizes.min() < 0:
        raise GobrrrError(f"sequence {int(np.argmax(sizes < 0))} has a negative length", "give numbers of tokens")
    if max_tokens is not None and sizes.max() > max_tokens:
        at = int(sizes.argmax())
        raise GobrrrError(
            f"sequence {at} has {sizes[at]} tokens, a batch {max_tokens}", "raise max_tokens, or truncate"
        )
    return sizes


def padded_efficiency(lengths: ArrayLike, batches: Bins) -> float:
    """Tokens over the tokens that are computed on where each batch is padded to its longest sequence."""
    sizes = np.asarray(lengths)[batches.indices]
    rows = np.diff(batches.offsets)
    begins = batches.offsets[:-1][rows > 0]
    return int(sizes.sum()) / max(1, int((np.maximum.reduceat(sizes, begins) * rows[rows > 0]).sum()))


class OrderDistance(NamedTuple):
    """How far an epoch is from a uniformly random one, by the lengths' ranks: 0 is as random, 1 is wholly sorted.

    Both are the share of the variance that lies between groups, less what chance puts there (epsilon squared, Kelley
    1935): a gradient of batches that are alike is noisier, and an epoch that drifts has waves in its loss.
    """

    batches: float
    """Between batches: how alike those are that come together."""
    drift: float
    """Between the fiftieths of the epoch: how far lengths change along it."""


def order_distance(lengths: ArrayLike, batches: Iterable[list[int]]) -> OrderDistance:
    """Measure the order of one epoch's batches: `order_distance(lengths, sampler.batches(0))`."""
    drawn = batches if isinstance(batches, Bins) else Bins.of(batches)
    sizes = np.asarray(lengths)[drawn.indices]
    _, which, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[which]
    group = np.repeat(np.arange(len(drawn)), np.diff(drawn.offsets))
    return OrderDistance(_between(ranks, group), _between(ranks, group * 50 // max(1, len(drawn))))


def _between(values: NDArray[Any], group: NDArray[Any]) -> float:
    number = np.bincount(group)
    groups = int((number > 0).sum())
    total = float(((values - values.mean()) ** 2).sum()) if len(values) else 0.0
    if not total or groups >= len(values):
        return 0.0
    means = np.bincount(group, weights=values) / np.maximum(1, number)
    within = float(((values - means[group]) ** 2).sum())
    return 1 - (within / (len(values) - groups)) / (total / (len(values) - 1))
