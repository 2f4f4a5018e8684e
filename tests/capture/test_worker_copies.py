"""Whether workers of a stream give the same batches: seen in the batches, whatever the data set says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info  # noqa: E402

from gobrrr.recording.model.facts import LoaderFacts  # noqa: E402
from gobrrr.recording.run_folder.noted_facts import facts_of  # noqa: E402
from gobrrr.recording.run_folder.run import load_run  # noqa: E402
from tests.transparency.training import watched  # noqa: E402


class Stream(IterableDataset):
    """Rows of numbers that count; `shares`: each worker has a part; `alike`: all rows are the same one."""

    def __init__(self, shares: bool, alike: bool = False) -> None:
        self.shares, self.alike = shares, alike

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if self.shares else (0, 1)
        for row in range(first, 96, step):
            yield {"x": torch.full((4,), 1.0 if self.alike else float(row)), "mask": torch.ones(4)}


def loaded(data: Any, num_workers: int, path: Path) -> LoaderFacts:
    """The facts of a loader of it, over which a model trains."""
    with watched(path):
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for batch in DataLoader(data, batch_size=4, num_workers=num_workers):
            x = batch["x"] if isinstance(batch, dict) else batch[0]
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    (recording,) = load_run(path)
    (found,) = facts_of(recording, []).loaders
    return found


@pytest.mark.parametrize(("shares", "workers", "share"), [(False, 2, 1 / 2), (False, 3, 2 / 3), (True, 2, 0)])
def test_workers_that_each_give_all_of_a_stream_give_each_batch_again(
    shares: bool, workers: int, share: float, tmp_path: Path
) -> None:
    found = loaded(Stream(shares), workers, tmp_path)
    assert found.num_compared >= 20
    assert found.num_equal / found.num_compared == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("data", [Stream(True, alike=True), TensorDataset(torch.ones(96, 4))])
def test_what_comes_in_no_rhythm_and_what_is_no_stream_is_told_apart(data: Any, tmp_path: Path) -> None:
    found = loaded(data, 2, tmp_path)
    assert found.num_equal == found.num_compared
    assert bool(found.num_compared) == isinstance(data, Stream)
