"""Batches copied ahead on a CUDA or ROCm device, and processes that are forked meanwhile: none dies of them."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset  # noqa: E402

from gobrrr.data import ahead, prefetch  # noqa: E402
from gobrrr.data.ahead import Marked  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device"),
]
NUM = 12


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """By the children alone: here all garbage is still there when they are forked."""
    gc.collect()
    gc.disable()
    yield
    gc.collect()
    gc.enable()


class Cycle:
    """Frees what it holds when garbage is collected, and not before."""

    def __init__(self, *held: Any) -> None:
        self.itself, self.held = self, held


def ended(drop: Callable[[], object]) -> int:
    """How a forked child ended."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        drop()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("as_garbage", [True, False])
@pytest.mark.parametrize("which", ["host", "device"])
def test_a_child_may_drop_what_was_copied(
    monkeypatch: pytest.MonkeyPatch, which: str, as_garbage: bool, known: bool
) -> None:
    if not known:
        monkeypatch.setattr(ahead, "MARKED", Marked())  # which no fork calls
    host = torch.ones(1 << 20).pin_memory()
    (there,) = prefetch([host], "cuda")
    torch.cuda.synchronize()
    held = [Cycle({"host": host, "device": there}[which])]
    del host, there
    if as_garbage:
        held.clear()
        found = ended(gc.collect)
    else:
        held[0].itself = None
        found = ended(held.clear)
    if not known and found == 0:
        pytest.skip("this torch lets children free such memory: marked.py may go")
    assert found == (0 if known else -signal.SIGABRT)


TO_THE_END = """
import os, sys, torch
from gobrrr.data import prefetch
hosts = [torch.ones(1 << 20).pin_memory() for _ in range(3)]
batches = [host.cuda() for host in hosts] if sys.argv[1] == "plain" else list(prefetch(hosts, "cuda"))
torch.cuda.synchronize()
if os.fork() == 0:
    sys.exit()
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_child_ends_as_without_though_it_takes_its_modules_apart() -> None:
    plain, ours = (
        subprocess.run([sys.executable, "-c", TO_THE_END, how], capture_output=True, text=True, timeout=120).stdout
        for how in ("plain", "prefetch")
    )
    assert plain == ours == "0\n"


class Collecting(Dataset):
    """Its workers collect what was garbage when they were forked."""

    has_begun = False

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, at: int) -> Any:
        if not self.has_begun:
            self.has_begun = gc.collect() >= 0
        return torch.full((1 << 18,), float(at))


@contextlib.contextmanager
def as_a_remedy() -> Iterator[list[str]]:
    said: list[str] = []
    seams = Seams(lambda name, detail: said.append(detail))
    install(seams, ["prefetch"])
    try:
        yield said
    finally:
        seams.remove()


def trained(batches: Callable[[DataLoader], Any], pinned: bool, persistent: bool) -> list[list[float]]:
    """Two epochs, each with a validation in the middle of it and one that is left early; and nothing but garbage."""
    train, valid = (
        DataLoader(Collecting(), num_workers=2, pin_memory=pinned, persistent_workers=stays, prefetch_factor=2)
        for stays in (persistent, False)
    )
    means = []
    for _ in range(2):
        for at, batch in enumerate(batches(train)):
            means.append(one_step(batch))
            if at == NUM // 2:
                means += [one_step(each) for each in batches(valid)]
        for each, _ in zip(batches(valid), range(3), strict=False):
            means.append(one_step(each))
    return torch.stack(means).cpu().tolist()


def one_step(batch: Any) -> Any:
    there = batch.to("cuda")
    busy = torch.ones(1024, 1024, device="cuda")
    for _ in range(4):
        busy = busy @ busy / 1024
    Cycle(batch, there, busy)
    time.sleep(0.01)  # a step for the workers to keep up with: what is not there is not sent ahead
    return there.mean()


EPOCH = [*range(NUM // 2 + 1), *range(NUM), *range(NUM // 2 + 1, NUM), 0, 1, 2]


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_program_forks_workers_amid_training(pinned: bool, persistent: bool) -> None:
    with as_a_remedy() as said:
        assert trained(iter, pinned, persistent) == 2 * EPOCH
    assert said == ["batches to cuda"]


@pytest.mark.parametrize("pinned", [False, True])
def test_a_loop_over_prefetch_forks_workers_amid_training(pinned: bool) -> None:
    assert trained(lambda loader: prefetch(loader, "cuda"), pinned, False) == 2 * EPOCH


def test_batches_of_sparse_and_nested_tensors_come_as_well() -> None:
    batch = [torch.eye(3).to_sparse(), torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])]
    for sparse, nested in prefetch([batch, batch], "cuda"):
        assert sparse.to_dense().trace() == 3 and [len(each) for each in nested.unbind()] == [1, 2]
        assert sparse.is_cuda and nested.is_cuda
