"""Which processes are counted, and whose CPU time it was: on real ones that end within a second."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset  # noqa: E402

from gobrrr.capture.hooks.hooks import Hooks  # noqa: E402
from gobrrr.capture.steps.vitals import _END_NS, Children  # noqa: E402

FORK = multiprocessing.get_context("fork")
BUSY = 0.3


def busy() -> None:
    end = time.process_time() + BUSY
    while time.process_time() < end:
        pass


class Slow(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        busy()
        return torch.tensor(index)


@pytest.fixture
def children() -> Any:
    """Told by hooks that stand."""
    recorder: Any = SimpleNamespace(thread=0, adopts=lambda trains: False)
    hooks = Hooks(recorder, lambda error: pytest.fail(str(error)))
    hooks._loaders()
    yield hooks.children
    hooks.remove()


def test_a_process_is_counted_with_its_time(children: Children) -> None:
    process = FORK.Process(target=busy)
    process.start()
    process.join()
    found = children.facts()
    assert found["processes"] == 1 and found["loaders_ns"] == 0
    assert found["cpu_ns"] >= 0.9e9 * BUSY and found["own_ns"] > 0


def test_workers_of_a_loader_are_set_apart(children: Children) -> None:
    for _ in DataLoader(Slow(), num_workers=2, multiprocessing_context=FORK):
        pass
    found = children.facts()
    assert found["processes"] == 0
    assert found["loaders_ns"] >= 2 * _END_NS + 0.9e9 * 4 * BUSY
    assert found["cpu_ns"] <= found["loaders_ns"] + 1e8


def test_workers_of_a_loader_that_is_left_are_set_apart_once(children: Children) -> None:
    batches = iter(DataLoader(Slow(), num_workers=1, multiprocessing_context=FORK))
    next(batches)
    batches._shutdown_workers()
    once = children.facts()["loaders_ns"]
    batches._shutdown_workers()
    assert children.facts()["loaders_ns"] == once > _END_NS


def test_what_subprocess_starts_is_no_process_of_multiprocessing(children: Children) -> None:
    busy = "import time\nwhile time.process_time() < 0.05: pass"  # the system counts in hundredths of a second
    subprocess.run([sys.executable, "-c", busy], check=True)
    found = children.facts()
    assert found["processes"] == 0 and found["cpu_ns"] > 0


def test_what_a_child_starts_is_not_ours_to_count(children: Children) -> None:
    children.pid += 1
    children.starts(SimpleNamespace())
    children.loader_ends(SimpleNamespace(_shutdown=False, _workers=[SimpleNamespace(pid=1)]))
    assert (children.processes, children.loaders_ns) == (0, 0)
