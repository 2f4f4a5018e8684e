"""Faults in what comes from the loader; some claim that only the order has changed."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler

from benchmarks.guard_sabotages.switch import fault, instead, on


def _batches(change: Any) -> None:
    """Each batch (x, y) of the training loader becomes change(number, x, y)."""
    plain = DataLoader.__iter__

    def __iter__(loader: Any) -> Any:
        for number, (x, y) in enumerate(plain(loader)):
            yield change(number, x, y) if on() and isinstance(loader.sampler, RandomSampler) else (x, y)

    DataLoader.__iter__ = __iter__  # type: ignore[method-assign]


def _last_is_first(tensor: Any) -> Any:
    return torch.cat([tensor[:-1], tensor[:1]])


def _random_rows(change: Any) -> None:
    """The method that draws replacements of tokens, on the program's own data set."""

    def made(keywords: dict[str, Any]) -> dict[str, Any]:
        rows = sys.modules["__main__"].Rows
        if not hasattr(rows, "_spoiled"):
            rows._spoiled = True
            instead(rows, "augmented", change)
        return keywords

    return made


@fault(known=True, safety="order")
def wrong_seed(seams: Any) -> None:
    """draws begin anew from another seed"""
    _once(lambda: torch.manual_seed(1))


def _once(action: Any) -> None:
    done: list[int] = []

    def change(number: int, x: Any, y: Any) -> Any:
        if not done:
            done.append(action() is None)
        return x, y

    _batches(change)


@fault(known=True)
def dup_samples(seams: Any) -> None:
    """the last sample of a batch is its first"""
    _batches(lambda number, x, y: (_last_is_first(x), _last_is_first(y)))


@fault(known=True)
def labels_shifted(seams: Any) -> None:
    """the last labels of a batch are its first's"""
    _batches(lambda number, x, y: (x, _last_is_first(y)))


@fault(known=True, latest=24)
def fewer_samples(seams: Any) -> None:
    """some batches lack a sample"""
    _batches(lambda number, x, y: (x[:-1], y[:-1]) if number % 4 == 3 else (x, y))


@fault(safety="order", latest=18)
def half_data(seams: Any) -> None:
    """the first half of the data set, twice in an epoch"""
    instead(RandomSampler, "__iter__", lambda plain: lambda sampler: (i // 2 for i in plain(sampler)))


@fault(safety="order", latest=18)
def shuffle_off(seams: Any) -> None:
    """the same order in every epoch"""
    instead(RandomSampler, "__iter__", lambda plain: lambda sampler: iter(range(len(sampler))))


@fault(safety="order", latest=18)
def partial_dropped(seams: Any) -> None:
    """the last, smaller batch is left out"""
    plain = DataLoader.__iter__

    def __iter__(loader: Any) -> Any:
        for batch in plain(loader):
            if not (on() and isinstance(loader.sampler, RandomSampler) and len(batch[0]) < loader.batch_size):
                yield batch

    DataLoader.__iter__ = __iter__  # type: ignore[method-assign]


@fault(safety="order", latest=24)
def one_repeated(seams: Any) -> None:
    """one sample of every fourth batch comes twice, another never"""
    _batches(lambda number, x, y: (_last_is_first(x), _last_is_first(y)) if number % 4 == 1 else (x, y))


@fault(safety="order", latest=24)
def augmentation_off(seams: Any) -> None:
    """no random replacement of tokens"""
    seams.at_loader(_random_rows(lambda plain: lambda rows, row: row))


@fault(safety="order", latest=24)
def augmentation_frozen(seams: Any) -> None:
    """each sample is augmented once, and kept (a cache behind the random transforms)"""

    def frozen(plain: Any) -> Any:
        kept: dict[bytes, Any] = {}
        return lambda rows, row: kept.setdefault(row.numpy().tobytes(), plain(rows, row))

    seams.at_loader(_random_rows(frozen))
