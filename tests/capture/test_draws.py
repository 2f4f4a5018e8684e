"""Whether loaders draw: seen between a fetch and its batch, in the program's process, and never changed by looking."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset  # noqa: E402

from gobrrr.capture.steps import random_numbers as looking  # noqa: E402
from gobrrr.capture.steps.random_numbers import Draws  # noqa: E402
from gobrrr.recording.run_folder.noted_facts import facts_of  # noqa: E402
from gobrrr.recording.run_folder.run import load_run  # noqa: E402
from tests.transparency.training import watched  # noqa: E402

DRAWS: dict[str, Any] = {
    "torch": lambda: torch.rand(1),
    "NumPy": lambda: np.random.rand(),
    "random": random.random,
    "a generator of its own": lambda: np.random.default_rng(0).random(),
    "nothing": lambda: None,
}
SEEN = {"torch", "NumPy", "random"}


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "PAUSE", 0)


@pytest.mark.parametrize("kind", DRAWS)
def test_a_draw_between_fetch_and_batch_is_seen(kind: str) -> None:
    found = Draws()
    for _ in range(3):
        DRAWS[kind]()  # the sampler's, or the program's
        found.begin()
        DRAWS[kind]()
        found.end(("loader",))
    assert found.looks == {("loader",): [3, 3 if kind in SEEN else 0]} and not found.error


def test_looking_changes_no_stream() -> None:
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    found = Draws()
    found.begin()
    found.end(("loader",))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]


def test_a_batch_without_a_fetch_and_one_of_another_thread_are_no_look() -> None:
    found = Draws()
    found.end(("loader",))
    thread = threading.Thread(target=found.begin)
    thread.start()
    thread.join()
    found.end(("loader",))
    assert found.looks == {}


def test_a_look_is_followed_by_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(looking, "perf_counter_ns", lambda: next(clock))
    monkeypatch.setattr(looking, "PAUSE", 5)
    found = Draws()
    found.begin()  # at 0, until 10
    found.end(("loader",))  # from 20 to 30: twenty in all, and nothing before 130
    for now in (129, 130):
        clock = iter(range(now, 1000, 10))
        found.begin()
        found.end(("loader",))
        assert found.looks[("loader",)][0] == 1 + (now == 130)


def test_what_goes_wrong_ends_the_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Any:
        raise RuntimeError("no states")

    monkeypatch.setattr(looking, "states", fails)
    found = Draws()
    found.begin()
    found.end(("loader",))
    assert found.error == "RuntimeError('no states')" and found.looks == {}


class Rows(Dataset):
    def __init__(self, draws: bool) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), float(index)) + (torch.rand(4) if self.draws else 0)


@pytest.mark.parametrize("draws", [False, True])
def test_a_program_that_shuffles_and_drops_out_draws_nothing_for_its_samples(draws: bool, tmp_path: Path) -> None:
    with watched(tmp_path):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = DataLoader(Rows(draws), batch_size=4, shuffle=True)
        for _ in range(8):
            for rows in loader:
                model(rows).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    (recording,) = load_run(tmp_path)
    (found,) = facts_of(recording, []).loaders
    assert found.num_looked > 10 and found.num_drew == (found.num_looked if draws else 0)
