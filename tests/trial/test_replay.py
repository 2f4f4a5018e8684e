"""An arm whose batches are replayed: which batches a program gets, what is on the clock, and what is refused."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gobrrr.capture.session.session import StopProgram
from gobrrr.cli.main import main
from gobrrr.trial.arm import protocol, replaying
from gobrrr.trial.arm.arm import REPLAYING, TIMED, Arm
from gobrrr.trial.arm.inside import Inside
from gobrrr.trial.arm.replaying import MOST, MOST_LOADERS, Replay, Replaying
from gobrrr.trial.race.headroom import REPLAYED
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.sandbox.workspace import WORK, mirror_of

MB = 1 << 20


class Telling:
    """An arm's line, kept."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.said.append((kind, fields))


class Pair(NamedTuple):
    x: Any
    words: dict[str, Any]


class Rows(Dataset[Any]):
    """Counts the samples that are made. Sample i is a tensor of i, and containers."""

    def __init__(self, num: int = 100) -> None:
        self.num, self.made = num, 0

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> Any:
        self.made += 1
        return index


def collate(indices: list[int]) -> Pair:
    return Pair(torch.tensor(indices, dtype=torch.float32), {"ids": list(indices), "deep": [torch.tensor(indices)]})


@pytest.fixture
def put_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Replay in this process, taken out again; with what it told."""
    monkeypatch.setattr(DataLoader, "_get_iterator", DataLoader._get_iterator)
    line = Telling()
    gauge = Replay(line)
    gauge.install()
    gauge.begin(True)
    yield SimpleNamespace(gauge=gauge, said=line.said)


def test_a_program_that_changes_its_batches_gets_each_as_it_was_made(put_in) -> None:
    """In place, through .data, through NumPy, in the containers, and by a gradient: nothing piles up."""
    loader = DataLoader(Rows(), batch_size=4, collate_fn=collate)
    firsts = []
    for _ in range(3):
        for batch in loader:
            first = int(batch.words["ids"][0])
            wanted = [first + n for n in range(4)]
            assert batch.x.tolist() == batch.words["ids"] == batch.words["deep"][0].tolist() == wanted
            assert type(batch) is Pair and not batch.x.requires_grad and batch.x.grad is None
            firsts.append(first)
            batch.words["deep"][0].numpy()[:] = -1
            batch.words["ids"].append(7)
            batch.words.pop("deep")
            batch.x.requires_grad_().square().sum().backward()
            batch.x.data.zero_()
    assert len(firsts) == 3 * 25, "as many batches in an epoch as before"
    assert firsts == [4 * (n % MOST) for n in range(75)], "the first ones, one after the other across epochs"


def test_samples_are_made_for_the_kept_batches_alone(put_in) -> None:
    data = Rows()
    for _ in range(2):
        for _batch in DataLoader(data, batch_size=4):  # a loader for each epoch, of the same samples
            pass
    assert data.made == 4 * MOST
    assert put_in.said == [("applied", {"remedy": protocol.REPLAYED, "detail": f"{MOST} of 25 batches an epoch"})]


def test_a_short_epoch_and_one_that_breaks_off_are_as_long_as_they_were(put_in) -> None:
    loader = DataLoader(Rows(10), batch_size=4)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [next(iter(loader)).tolist() for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(list(loader)) == 3


def test_workers_make_the_kept_batches_and_end(put_in) -> None:
    for stays in (False, True):
        loader = DataLoader(Rows(40), batch_size=4, num_workers=1, persistent_workers=stays)
        for _ in range(2):
            assert sum(1 for _ in loader) == 10
        assert not any(child.is_alive() for child in torch.multiprocessing.active_children())


def test_a_data_set_with_a_loader_of_its_own_reads_what_it_always_reads(put_in) -> None:
    class Outer(Rows):
        def __getitem__(self, index: int) -> Any:
            return sum(int(each) for each in DataLoader(list(range(index, index + 20)), batch_size=None))

    loader = DataLoader(Outer(10), batch_size=None)
    assert list(loader)[:8] == [sum(range(n, n + 20)) for n in range(8)]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(1000))


class Short(Stream):
    """Says that it has more than it gives."""

    def __len__(self) -> int:
        return 100

    def __iter__(self) -> Iterator[int]:
        return iter(range(12))


def test_a_stream_that_ends_before_it_said_is_as_long_as_it_is(put_in) -> None:
    loader = DataLoader(Short(), batch_size=4)
    assert [len(list(loader)) for _ in range(2)] == [3, 3]


def test_a_slow_loader_gives_fewer(put_in, monkeypatch) -> None:
    """Others wait for the first step of this arm."""
    now = iter(range(0, 1000, 6))
    monkeypatch.setattr(replaying.time, "monotonic", lambda: next(now))
    data = Rows()
    assert len(list(DataLoader(data, batch_size=4))) == 25 and data.made == 4 * 2


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        (lambda: DataLoader(Stream(), batch_size=4), "a stream without a length"),
        (lambda: DataLoader(Rows(), batch_size=4, collate_fn=lambda b: torch.zeros(MB)), "too large to keep: 4.00 MiB"),
        (lambda: DataLoader(Rows(), collate_fn=lambda b: {"x": [torch.zeros(2 * MB)]}), "too large to keep: 8.00 MiB"),
        (lambda: DataLoader(Rows(), collate_fn=lambda b: threading.Lock()), "cannot be copied: TypeError"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_a_line_and_ends_the_arm(loader, reason: str, put_in, monkeypatch) -> None:
    """Free memory of 60 MiB has room for 6 of batches, two of 3."""
    monkeypatch.setattr(replaying.psutil, "virtual_memory", lambda: SimpleNamespace(available=60 * MB))
    with pytest.raises(StopProgram):
        next(iter(loader()))
    ((kind, fields),) = put_in.said
    assert kind == "failed" and reason in fields["error"] and "\n" not in fields["error"]


def test_batches_that_fit_in_part_are_fewer(put_in, monkeypatch) -> None:
    monkeypatch.setattr(replaying.psutil, "virtual_memory", lambda: SimpleNamespace(available=40 * MB))
    loader = DataLoader(Rows(), collate_fn=lambda b: (torch.full((MB // 4,), float(b[0])), torch.zeros(1)))
    assert len({float(batch[0][0]) for batch in loader}) == 3, "a MiB and four bytes each, of four"


def test_a_view_is_copied_without_all_that_it_is_a_view_of(put_in) -> None:
    whole = torch.arange(MB, dtype=torch.float32)
    for batch in DataLoader(Rows(12), batch_size=4, collate_fn=lambda b: whole[b[0] : b[0] + 4]):
        assert batch.untyped_storage().nbytes() == 16


def test_a_program_that_makes_a_data_set_for_each_epoch_is_refused(put_in) -> None:
    for _ in range(MOST_LOADERS):
        next(iter(DataLoader(Rows())))
    with pytest.raises(StopProgram):
        next(iter(DataLoader(Rows())))
    assert "each with a data set of its own" in put_in.said[-1][1]["error"]


def test_copying_is_off_the_clock_of_the_steps_that_count(put_in, monkeypatch) -> None:
    """One ns to copy. A step that another loop interrupts is none; what is copied beside it costs a step nothing."""
    clock = SimpleNamespace(now=0)

    def made(batch: Any) -> Any:
        clock.now += 1
        return batch

    monkeypatch.setattr(replaying, "copied", made)
    monkeypatch.setattr(replaying.time, "perf_counter_ns", lambda: clock.now)
    gauge, batches = put_in.gauge, iter(DataLoader(Rows()))
    gauge.begin(True)
    next(batches), next(batches)
    gauge.step(True)
    next(batches)
    gauge.step(False)
    beside = threading.Thread(target=next, args=(batches,))
    beside.start()
    beside.join()
    gauge.step(True)
    next(batches)
    gauge.step(True)
    assert gauge.end() == {"copied_ns": 3}
    gauge.begin(True)
    assert gauge.end() == {"copied_ns": 0}


def test_a_block_is_as_long_as_it_was_without_copying(monkeypatch) -> None:
    monkeypatch.setattr(Inside, "_block", lambda arm: {"ns": 10, "steps": 1, "copied_ns": 3})
    assert Replaying._block(object.__new__(Replaying)) == {"ns": 7, "steps": 1}


def test_a_process_that_the_program_forks_reads_for_itself(put_in, monkeypatch) -> None:
    monkeypatch.setattr(replaying.os, "getpid", lambda: -1)
    assert [int(batch) for batch in DataLoader(Rows(20))] == list(range(20)) and not put_in.said


PROGRAM = Path(__file__).parent / "programs" / "trains.py"


def samples(steps: int, timed: str, tmp_path: Path) -> int:
    """That a program of four samples a batch has made by the end of a block."""
    (tmp_path / "work").mkdir(exist_ok=True)
    arm = Arm([sys.executable, str(PROGRAM)], tmp_path / timed.partition(":")[2], source=tmp_path / "work", timed=timed)
    try:
        arm.start(100)
        block = arm.run(steps)
        assert len(block.walls) == steps and 0 < block.ns <= sum(block.walls) + 1e9
        took_hold = protocol.REPLAYED in arm.applied
        assert took_hold == (timed == REPLAYING)
        return (mirror_of(tmp_path / "work", arm._folder / WORK) / "samples").stat().st_size
    finally:
        arm.end()


def test_the_referee_gives_such_an_arm_no_remedies(tmp_path: Path) -> None:
    referee = LiveReferee(Program(("python", "t.py"), tmp_path), tmp_path / "arms")
    try:
        replays, plain = referee.arm(tmp_path / "a", REPLAYED), referee.arm(tmp_path / "b", ())
        assert (replays._timed, replays.remedies, plain._timed) == (REPLAYING, (), TIMED)
        assert referee._side(tmp_path / "c", REPLAYED)._remedies == REPLAYED, "it must say that it took hold"
    finally:
        referee.close()


@pytest.mark.parametrize("words", [["tune", "--try", REPLAYED[0]], ["tune", "--only", REPLAYED[0]]])
def test_nobody_can_name_it(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program := tmp_path / "t.py").touch()
    assert main([*words, str(program)]) == 2 and f"no remedy is called {REPLAYED[0]}" in capsys.readouterr().err


def test_an_arm_replays_and_the_program_as_it_is_makes_all_of_its_samples(tmp_path: Path) -> None:
    assert samples(12, REPLAYING, tmp_path) == 4 * MOST
    assert samples(12, TIMED, tmp_path) == 4 * 13, "a block and the step before it"
    assert not list((tmp_path / "work").iterdir()), "nothing is left where the user works"
