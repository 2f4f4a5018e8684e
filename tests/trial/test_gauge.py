"""What an arm measures beside time: a peak that can be computed by hand, and how many samples a loader gave."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

pytest.importorskip("torch")

from gobrrr.errors import GobrrrError
from gobrrr.pipeline import tuning
from gobrrr.trial.arm import meters
from gobrrr.trial.arm.arm import Arm, ArmError
from gobrrr.trial.statistics.objective import MEMORY, THROUGHPUT, TIME, Objective
from tests.support import DESCENT

MIB = 1 << 20
linux = pytest.mark.skipif(bool(meters.unable()), reason="the peak of resident memory cannot be reset here")
KNOWN = """
from gobrrr.trial.arm import meters
MIB = 1 << 20
peak = meters.Peak()
peak.begin(True)
held = bytearray(300 * MIB)
del held
before = peak.end()["peak_bytes"]
peak.begin(True)
empty = peak.end()["peak_bytes"]
held = [bytearray(64 * MIB) for _ in range(4)]
del held
print(before - empty, peak.end()["peak_bytes"] - empty)
"""
KEPT_BY_GLIBC = """
from gobrrr.trial.arm import meters
small = [bytearray(64 << 10) for _ in range(3200)]  # 200 MiB from the heap
last = bytearray(64 << 10)                          # above them: the heap cannot shrink
del small
peak = meters.Peak()
peak.begin(False)
kept = peak.end()["peak_bytes"]
peak.begin(True)
print(kept - peak.end()["peak_bytes"])
"""
LOGITS = (
    DESCENT
    + """\
import torch
torch.set_num_threads(1)
rows, width, classes = 1024, 64, 16384  # 64 MiB of logits, and as much for their log-softmax and their gradient
model = torch.nn.Sequential(torch.nn.Embedding(512, width), torch.nn.Linear(width, classes))
optimizer = Descent(model.parameters(), lr=0.01)
x, y = torch.randint(0, 512, (rows,)), torch.randint(0, classes, (rows,))
first = bytearray(900 << 20)  # what was there before the steps is no part of their peak
del first
while True:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
)
LOADED = (
    DESCENT
    + """\
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 4)
optimizer = Descent(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(40, 4))
while True:
    for (x,) in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
)


def printed(program: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


@linux
def test_the_peak_is_that_of_its_own_block() -> None:
    before, now = printed(KNOWN)
    assert before == pytest.approx(300 * MIB, rel=0.02) and now == pytest.approx(256 * MIB, rel=0.02)


@linux
def test_what_glibc_keeps_of_freed_memory_is_no_part_of_it() -> None:
    (given_back,) = printed(KEPT_BY_GLIBC)
    assert given_back > 150 * MIB or platform.libc_ver()[0] != "glibc"


def arm(tmp_path: Path, program: str, objective: Objective, name: str = "arm", remedies: tuple[str, ...] = ()) -> Arm:
    (tmp_path / "work").mkdir(exist_ok=True)
    (tmp_path / "work" / "train.py").write_text(program)
    return Arm([sys.executable, "train.py"], tmp_path / name, remedies, source=tmp_path / "work", objective=objective)


@linux
def test_a_steps_peak_is_what_can_be_computed_by_hand(tmp_path: Path) -> None:
    made = arm(tmp_path, LOGITS, MEMORY)
    try:
        made.start(120)
        made.run(2)
        peak, rests = made.run(2, 1e9).peak_bytes, made.resident()
        assert peak is not None
        assert peak - rests == pytest.approx(3 * 64 * MIB, rel=0.15) and made.run(2, 1e9).peak_bytes < rests + 300 * MIB
    finally:
        made.end()


def test_a_blocks_samples_are_those_of_its_batches(tmp_path: Path) -> None:
    """Batches of 16, 16 and 8, over and over."""
    made = arm(tmp_path, LOADED, THROUGHPUT)
    try:
        made.start(120)
        assert made.run(3).samples == made.run(6).samples / 2 == 40
        assert sorted(made.run(1).samples for _ in range(3)) == [8, 16, 16]
    finally:
        made.end()


@pytest.fixture
def counted() -> Iterator[meters.Samples]:
    from torch.utils.data import dataloader

    kind, found = dataloader._BaseDataLoaderIter, meters.Samples()
    before = kind._next_index, kind.__next__, kind._reset
    found.install()
    found.begin(True)
    yield found
    kind._next_index, kind.__next__, kind._reset = before


def test_samples_are_counted_by_indices_however_they_are_fetched(counted: meters.Samples) -> None:
    from torch.utils.data import DataLoader, Dataset

    class Nested(Dataset):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> int:
            return sum(map(len, DataLoader(range(7), batch_size=7)))

    for loader in (DataLoader(Nested(), batch_size=4), DataLoader(range(10), batch_size=4, num_workers=2)):
        counted.begin(True)
        for _ in loader:
            counted.step(True)
        assert counted.end() == {"samples": 10}
    counted.begin(True)
    for _ in DataLoader(range(5), batch_size=None):  # what one of these holds is the data set's own affair
        counted.step(True)
    assert counted.end() == {"samples": 5}


def test_what_a_step_was_given_that_does_not_count_counts_for_nothing(counted: meters.Samples) -> None:
    from torch.utils.data import DataLoader

    for number, _ in enumerate(DataLoader(range(8), batch_size=2)):
        counted.step(number != 1)
    assert counted.end() == {"samples": 6}


GROWING = [[0], [1, 2], [3, 4, 5], [6, 7, 8, 9]]
"""Indices of batches."""


def test_what_workers_drew_ahead_of_an_end_is_no_part_of_the_next_epoch(counted: meters.Samples) -> None:
    """Workers that stay draw for the next epoch anew."""
    from torch.utils.data import DataLoader

    loader = DataLoader(range(10), batch_sampler=GROWING, num_workers=1, persistent_workers=True)
    for _ in range(3):
        counted.begin(True)
        for batch in loader:
            counted.step(True)
            if len(batch) == 2:
                break
        assert counted.end() == {"samples": 3}


def test_a_batch_that_could_not_be_made_is_no_other_ones(counted: meters.Samples) -> None:
    from torch.utils.data import DataLoader

    batches = iter(DataLoader({1: 1, 2: 2}, batch_sampler=GROWING))  # no sample 0
    with pytest.raises(KeyError):
        next(batches)
    next(batches)
    counted.step(True)
    assert counted.end() == {"samples": 2}


def test_where_it_cannot_be_measured_that_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "CLEAR", tmp_path / "absent" / "clear_refs")
    with pytest.raises(GobrrrError) as caught:
        tuning.check_gauge(MEMORY, device=False)
    assert "the peak memory of steps cannot be measured here (" in caught.value.message
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    tuning.check_gauge(TIME, device=False)
    tuning.check_gauge(MEMORY, device=True)
    (tmp_path / "train.py").write_text("raise SystemExit('was run')")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(GobrrrError, match="darwin has no "):
        tuning.tune(
            [sys.executable, "train.py"], tmp_path, tmp_path / "out", tuning.Wishes(objective=MEMORY), sys.stderr
        )
    assert not (tmp_path / "out").exists(), "before anything is run"


def test_an_arm_that_cannot_measure_says_so(tmp_path: Path) -> None:
    hidden = "import pathlib\nfrom gobrrr.trial.arm import meters\nmeters.CLEAR = pathlib.Path('absent/clear_refs')\n"
    made = arm(tmp_path, hidden + LOADED, MEMORY)
    try:
        made.start(120)
        with pytest.raises(ArmError) as caught:
            made.run(1)
        assert "cannot be measured here" in caught.value.reason
    finally:
        made.end()


def test_on_a_device_its_own_figures_count(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        peaks: ClassVar = {0: 5 * MIB, 1: 7 * MIB}
        reset: ClassVar[list[int]] = []

        def device_count(self) -> int:
            return 2

        def reset_peak_memory_stats(self, device: int) -> None:
            self.reset.append(device)

        def max_memory_allocated(self, device: int) -> int:
            return self.peaks[device]

    monkeypatch.setattr(meters, "cuda_in_use", Cuda)
    monkeypatch.setattr(meters, "reset", lambda: pytest.fail("no resident memory is asked for"))
    found = meters.Peak()
    found.begin(True)
    assert found.end() == {"peak_bytes": 12 * MIB} and Cuda.reset == [0, 1]


def test_each_objective_has_its_gauge() -> None:
    kinds = [type(meters.of(name)) for name in ("memory", "throughput", "time", None)]
    assert kinds == [meters.Peak, meters.Samples, meters.Nothing, meters.Nothing]
