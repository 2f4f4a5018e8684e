"""What is noted of a loader, on real ones."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Subset, TensorDataset  # noqa: E402

from gobrrr.capture.facts.loader_facts import loader_facts, until_second_epoch  # noqa: E402
from gobrrr.capture.process.config import Config  # noqa: E402
from gobrrr.capture.process.launch import environment  # noqa: E402
from gobrrr.capture.source.user_code import calling_line  # noqa: E402
from gobrrr.recording.run_folder.run import load_run  # noqa: E402

TABLE = TensorDataset(torch.arange(32))


class Batched(Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)

    def __getitems__(self, indices: list[int]) -> Any:
        return list(torch.tensor(indices))


ROWS = BatchSampler(RandomSampler(TABLE), batch_size=8, drop_last=False)


@pytest.mark.parametrize(
    ("loader", "one_by_one"),
    [
        (DataLoader(TABLE, batch_size=8), True),
        (DataLoader(Subset(TABLE, range(16)), batch_size=8), True),
        (DataLoader(TABLE, sampler=ROWS, batch_size=None), False),
        (DataLoader(Batched(), batch_size=8), False),
        (DataLoader(Subset(Batched(), range(16)), batch_size=8), False),
    ],
    ids=["table", "part of a table", "batches of indices", "__getitems__", "part with __getitems__"],
)
def test_who_takes_a_batch_of_indices(loader: Any, one_by_one: bool) -> None:
    found = loader_facts(iter(loader), sys._getframe())
    assert (found["one_by_one"], found["batch_size"]) == (one_by_one, 8)


def test_a_data_set_and_collate_function_of_torchs_own_are_no_lines_of_the_users() -> None:
    theirs, torchs = (loader_facts(iter(DataLoader(data)), sys._getframe()) for data in (Batched(), TABLE))
    assert theirs["dataset_span"]["function"] == "__getitem__" and theirs["dataset_span"]["file"] == __file__
    assert torchs["dataset_span"] is torchs["collate_span"] is None


def test_a_program_that_counts_its_calls_counts_none_of_ours() -> None:
    lengths: list[str] = []
    iterator = iter(DataLoader(Batched(), batch_size=8))

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "__len__":
            lengths.append(frame.f_code.co_filename)

    assert loader_facts(iterator, sys._getframe())["length"] == 32
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        found = loader_facts(iterator, sys._getframe())
    finally:
        sys.setprofile(before)
    assert (found["length"], found["in_memory"], lengths) == (None, False, [])


class Agent(torch.nn.Module):
    def act(self, look: Callable[[], Any]) -> Any:
        return look()  # as if it called its net here


class Base(torch.nn.Module):
    @torch.no_grad()
    def act(self, look: Callable[[], Any]) -> Any:
        return look()


class Frozen(Base):
    pass


class Trainer:
    def act(self, look: Callable[[], Any]) -> Any:
        return look()


def evaluate(model: torch.nn.Module) -> Any:
    return looks()


def looks() -> Any:
    return calling_line(sys._getframe(1))


@pytest.mark.parametrize(
    ("call", "function"),
    [
        (lambda: Agent().act(looks), "<lambda>"),
        (lambda: torch.no_grad()(Agent().act)(looks), "<lambda>"),
        (lambda: next(map(Agent().act, [looks])), "<lambda>"),
        (lambda: looks(), "<lambda>"),
        (lambda: evaluate(Agent()), "evaluate"),
        (lambda: Frozen().act(looks), "<lambda>"),
        (lambda: Trainer().act(looks), "act"),
        (lambda: functools.singledispatch(Agent().act)(looks), "act"),
    ],
    ids=[
        "a policy",
        "under torch's own decorator",
        "called by C",
        "no module",
        "a function of a model",
        "a decorated method of a base class",
        "a method of no module",
        "called by a library",
    ],
)
def test_the_line_that_makes_forwards_is_the_loops_own(call: Callable[[], Any], function: str) -> None:
    found = call()
    assert (found["file"], found["function"]) == (__file__, function)


def facts(key: int = 1, **fields: Any) -> dict[str, Any]:
    return {"key": [key, 0, 0], "num_workers": 0, "length": 800, "batch_size": 8, **fields}


@pytest.mark.parametrize(
    ("seen", "steps"),
    [
        ([facts()], 70),
        ([facts(), facts(2, length=160)], 70),
        ([facts(length=232)], -1),
        ([facts(length=160)], float("inf")),
        ([facts(), facts()], float("inf")),
        ([facts(num_workers=1)], float("inf")),
        ([facts(length=None)], float("inf")),
        ([facts(batch_size=None)], float("inf")),
        ([], float("inf")),
    ],
    ids=["30 of 100 made", "the longest", "due", "over", "begun anew", "workers", "no length", "no batches", "none"],
)
def test_how_far_a_second_epoch_is(seen: list[dict[str, Any]], steps: float) -> None:
    assert until_second_epoch(seen, 30) == steps


@pytest.mark.parametrize(("length", "epochs"), [(20_000, 2), (10**8, 1)], ids=["near", "far"])
def test_a_diagnosis_that_saw_enough_stays_for_a_second_epoch_that_is_near(
    length: int, epochs: int, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(length=length))
    config = Config(str(tmp_path / "run"), plain_ns=20_000_000, sample_ns=20_000_000, steps=14, leave=20)
    (tmp_path / "run").mkdir()
    subprocess.run([sys.executable, str(script)], env=environment(config), timeout=120)
    (recording,) = load_run(tmp_path / "run")
    iterators = recording.raw_facts[-1]["loaders"]
    assert (recording.ended, len(iterators)) == ("left early", epochs)


PROGRAM = """
import torch
from torch.utils.data import DataLoader
data = [torch.full((4,), float(n)) for n in range(4)]
class Rows(torch.utils.data.Dataset):
    def __len__(self): return {length}
    def __getitem__(self, index): return data[index % 4]
loader = DataLoader(Rows(), batch_size=4)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(1000):
    for batch in loader:
        loss = model(batch).sum() * 0
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
