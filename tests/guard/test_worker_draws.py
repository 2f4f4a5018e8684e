"""Workers that each have a copy of a data set's own generator: when they repeat its draws, and when they do not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.utils.data import DataLoader

from gobrrr.capture.hooks.lookup import Patches
from gobrrr.guard import compare
from gobrrr.guard.model.observation import Observation
from gobrrr.guard.verdicts import side_effects
from gobrrr.guard.watch.epochs import Epochs

from .test_sidedoors import OwnDraws


class Asking(OwnDraws):
    """Seeds its generator where it is in a worker."""

    def __getitem__(self, index: int) -> Any:
        if torch.utils.data.get_worker_info():
            self._generator.manual_seed(torch.utils.data.get_worker_info().seed)
        return super().__getitem__(index)


def _nothing(worker: int) -> None:
    pass


@pytest.mark.parametrize(
    ("before", "after", "data", "seeding", "stay", "verdict", "word"),
    [
        (0, 2, OwnDraws, None, False, "changed", "each of 2 workers"),
        (1, 2, OwnDraws, None, True, "changed", "each of 2 workers"),
        (0, 1, OwnDraws, None, False, "changed", "each epoch"),
        (0, 1, OwnDraws, None, True, "bounded", "not all"),
        (1, 1, OwnDraws, None, False, "bounded", "not all"),
        (2, 4, OwnDraws, None, False, "bounded", "not all"),
        (2, 1, OwnDraws, None, False, "bounded", "not all"),
        (0, 2, OwnDraws, _nothing, False, "bounded", "not all"),
        (0, 2, Asking, None, False, "bounded", "not all"),
        (0, 2, partial(OwnDraws, shared=True), None, False, "exact", "the same samples"),
    ],
)
def test_workers_that_draw_the_same_numbers_change_the_program(
    before: int, after: int, data: Any, seeding: Any, stay: bool, verdict: str, word: str
) -> None:
    def run(workers: int) -> Observation:
        stays = stay and workers > 0
        loader = DataLoader(data(), 4, num_workers=workers, worker_init_fn=seeding, persistent_workers=stays)
        watched, patches = Epochs(), Patches()
        watched.watch(patches)
        iter(loader)
        patches.take_out()
        return Observation(epochs=watched.read())

    found = side_effects._epochs(run(before), run(after), run(before), order_may_change=True)
    assert found.verdict == verdict and word in found.reason


class Stream(torch.utils.data.IterableDataset[torch.Tensor]):
    """80 samples one after the other; whoever reads it reads all."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.randn(80, 4, generator=torch.Generator().manual_seed(0))


def test_a_stream_that_two_workers_read_comes_twice_and_is_refused() -> None:
    """No remedy of ours makes it come twice; where one of others does, the samples' fingerprints show it."""

    def train(workers: int) -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for batch in islice(DataLoader(Stream(), 2, num_workers=workers), 40):
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    found = compare(partial(train, 0), partial(train, 2), order_may_change=True, float64=False)
    assert found.verdict == "wrong" and "40 samples came more often than in the baseline" in str(found.reasons)
