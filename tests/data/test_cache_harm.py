"""A cache that is killed, damaged, full or hostile: never a wrong sample, and none lost."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gobrrr.data import cache
from gobrrr.data.sample_cache import shards
from gobrrr.data.sample_cache.cached import CachedDataset
from gobrrr.data.sample_cache.store import Store
from gobrrr.errors import GobrrrError


def sample_of(index: int) -> dict[str, Any]:
    return {"index": index, "x": torch.full((7 + index % 11,), index), "s": str(index)}


def is_right(sample: Any, index: int) -> bool:
    return sample["index"] == index and bool((sample["x"] == index).all()) and sample["s"] == str(index)


def opened(folder: Path, number: int, **options: Any) -> CachedDataset:
    return cache(range(number), folder, function=sample_of, key="samples", check=False, **options)


def filled(folder: Path, number: int) -> None:
    dataset = opened(folder, number)
    for index in range(number):
        dataset[index]


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


WRITER = """
import sys
from pathlib import Path
from tests.data.test_cache_harm import opened
dataset = opened(Path(sys.argv[1]), 20_000)
print("open", flush=True)
sys.stdin.readline()
for index in range(20_000)[:: int(sys.argv[2])]:
    dataset[index]
"""


def started(folder: Path, step: int) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WRITER, str(folder), str(step)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=root)


@pytest.mark.slow
def test_two_processes_at_once_that_are_killed_lose_nothing_that_was_whole(tmp_path: Path) -> None:
    """A dozen rounds of two writers, killed at any moment; each goes on where the last ones were."""
    known = 0
    for number in range(6):
        both = [started(tmp_path / "c", step) for step in (1, -1)]
        for process in both:
            assert process.stdout is not None and process.stdout.readline() == "open\n"
        for process in both:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        time.sleep(0.01 + 0.05 * number)
        for process in both:
            process.send_signal(signal.SIGKILL)
        for process in both:
            process.communicate()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a torn end is no damage
            dataset = opened(tmp_path / "c", 20_000)
            dataset.store.look()
            held = len(dataset.store)
            assert held >= known
            known = held
            there = [at for at in range(20_000) if dataset.store._places[at] >= 0]
            assert all(is_right(dataset[at], at) for at in there)
            assert len(dataset.store) == held
    assert known > 0 and len(files_of(tmp_path / "c")) <= 4
    dataset = opened(tmp_path / "c", 20_000)
    assert all(is_right(dataset[at], at) for at in range(20_000)) and len(dataset.store) == 20_000


def test_a_forked_process_does_not_write_where_its_parent_does(tmp_path: Path) -> None:
    dataset = opened(tmp_path / "c", 400)
    assert is_right(dataset[0], 0)
    pid = os.fork()
    for index in range(400)[:: 1 if pid else -1]:
        dataset[index]
    if not pid:  # pragma: no cover - in the child
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh = opened(tmp_path / "c", 400)
        fresh.store._writes = False
        assert all(fresh.store.get(at) is not None and is_right(fresh[at], at) for at in range(400))


def test_entries_whose_data_a_crash_of_the_system_has_lost_are_passed_over(tmp_path: Path) -> None:
    filled(tmp_path / "c", 8)
    data, _ = files_of(tmp_path / "c")
    data.write_bytes(data.read_bytes()[:300])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = opened(tmp_path / "c", 8)
        assert all(is_right(dataset[at], at) for at in range(8))


def test_cut_at_any_byte_it_goes_on(tmp_path: Path) -> None:
    """What a kill leaves: the files end anywhere, the index no later than the data."""
    filled(tmp_path / "c", 8)
    data, index = files_of(tmp_path / "c")
    whole, entries = data.read_bytes(), index.read_bytes()
    ends = [entry["offset"] + entry["size"] + shards.HEAD.size for entry in np.frombuffer(entries, shards.ENTRY)]
    for cut in range(0, len(whole) + 1, 3):
        done = sum(end <= cut for end in ends)
        for torn in (0, 7) if done < 8 else (0,):
            data.write_bytes(whole[:cut])
            index.write_bytes(entries[: done * shards.ENTRY.itemsize + torn])
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                dataset = opened(tmp_path / "c", 8)
                dataset.store.look()
                assert len(dataset.store) == done
                assert all(is_right(dataset[at], at) for at in range(8))
                again = opened(tmp_path / "c", 8)
                again.store.look()
                assert len(again.store) == 8 and all(is_right(again[at], at) for at in range(8))


@pytest.mark.parametrize("copy", [True, False])
def test_no_flipped_byte_gives_a_wrong_sample(tmp_path: Path, copy: bool) -> None:
    """Three thousand damages in all: bytes changed, zeroed, or moved, in both files."""
    filled(tmp_path / "c", 12)
    data, index = files_of(tmp_path / "c")
    good = {path: path.read_bytes() for path in (data, index)}
    draw = random.Random(0)
    found = 0
    for _ in range(1500):
        for path, whole in good.items():
            bad = bytearray(whole)
            for _ in range(draw.choice([0, 1, 1, 3])):
                at, length = draw.randrange(len(bad)), draw.choice([1, 1, 2, 8, 40])
                part = bad[at : at + length]
                bad[at : at + length] = draw.choice([bytes(len(part)), draw.randbytes(len(part))])
            path.write_bytes(bad)
        with quiet():
            dataset = opened(tmp_path / "c", 12, copy=copy)
            dataset.store._writes = False
            kept = [dataset.store.get(at) is not None for at in range(12)]
            assert all(is_right(dataset[at], at) for at in range(12))
        found += 12 - sum(kept)
    assert found > 1000  # the damage was seen


def test_damage_is_told_once_and_made_good(tmp_path: Path) -> None:
    filled(tmp_path / "c", 5)
    data, _ = files_of(tmp_path / "c")
    whole = bytearray(data.read_bytes())
    whole[40] ^= 1
    data.write_bytes(whole)
    dataset = opened(tmp_path / "c", 5)
    with pytest.warns(RuntimeWarning, match="is damaged .the record of sample 0") as told:
        assert all(is_right(dataset[at], at) for at in (0, 0, 1, 2, 3, 4))
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_right(opened(tmp_path / "c", 5)[0], 0)


def test_a_good_record_elsewhere_serves_for_a_damaged_one(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "c", 3), opened(tmp_path / "c", 3)
    one.store.look()
    other.store.look()
    one.store._look_again = other.store._look_again = float("inf")  # so that neither sees the other's
    assert is_right(one[1], 1) and is_right(other[1], 1)
    first, second = sorted(tmp_path.glob("c/*.data"))
    for damaged in (first, second):
        whole = damaged.read_bytes()
        damaged.write_bytes(bytes(len(whole)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert opened(tmp_path / "c", 3).store.get(1) is not None
        damaged.write_bytes(whole)


def test_a_full_disk_costs_one_warning_and_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = 1000
    write = os.pwrite

    def pwrite(handle: int, data: Any, offset: int) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(handle, data[: min(room, 100)], offset)
        room -= written
        return written

    monkeypatch.setattr(os, "pwrite", pwrite)
    dataset = opened(tmp_path / "c", 50)
    with pytest.warns(RuntimeWarning, match="takes no more samples .No space left") as told:
        assert all(is_right(dataset[at], at) for at in range(50))
    assert len(told) == 1
    monkeypatch.undo()
    held = len(dataset.store)
    assert 0 < held < 50
    again = opened(tmp_path / "c", 50)
    again.store.look()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(again.store) == held and all(is_right(again[at], at) for at in range(50))


def test_a_limit_on_file_sizes_is_a_full_disk(tmp_path: Path) -> None:
    pid = os.fork()
    if not pid:  # pragma: no cover - in the child
        code = 1
        with contextlib.suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
            dataset = opened(tmp_path / "c", 50)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                right = all(is_right(dataset[at], at) for at in range(50))
            code = 0 if right and len(told) == 1 and "File too large" in str(told[0].message) else 2
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    dataset = opened(tmp_path / "c", 50)
    assert all(is_right(dataset[at], at) for at in range(50)) and len(dataset.store) == 50


def test_some_of_the_disk_stays_free(tmp_path: Path) -> None:
    dataset = opened(tmp_path / "c", 3, leave_free=1 << 60)
    with pytest.warns(RuntimeWarning, match="bytes of the disk are free"):
        assert is_right(dataset[0], 0)


def test_a_shard_too_large_to_be_mapped_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "c", 5)

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr("mmap.mmap", refused)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = opened(tmp_path / "c", 5, copy=False)
        assert all(dataset.store.get(at) is not None and is_right(dataset[at], at) for at in range(5))


def test_a_folder_that_goes_away_costs_no_sample(tmp_path: Path) -> None:
    import shutil

    dataset = opened(tmp_path / "c", 5)
    assert is_right(dataset[0], 0)
    shutil.rmtree(tmp_path / "c")
    with quiet():
        assert all(is_right(dataset[at], at) for at in range(5))
        fresh = CachedDataset(range(5), sample_of, Store(tmp_path / "c", 5, 0))
        assert all(is_right(fresh[at], at) for at in range(5))


def hostile_link(folder: Path, outside: Path) -> None:
    (folder / "part-0.index").symlink_to(outside)
    (folder / "part-0.data").symlink_to(outside)


def hostile_hard_link(folder: Path, outside: Path) -> None:
    (folder / "part-0.index").hardlink_to(outside)


def hostile_pipe(folder: Path, _: Path) -> None:
    os.mkfifo(folder / "part-0.index")
    os.mkfifo(folder / "part-0.data")


def hostile_folder(folder: Path, _: Path) -> None:
    (folder / "part-0.index").mkdir()


def hostile_sizes(folder: Path, _: Path) -> None:
    """Entries that claim a terabyte, in sparse files of a terabyte."""
    claims = [(0, 0, 2**32 - 1), (1, 2**62, 16), (2, -16, 16), (2**62, 0, 16), (-1, 0, 16), (3, 16, 2**30), (4, 1, 1)]
    (folder / "part-0.index").write_bytes(np.array(claims, shards.ENTRY).tobytes())
    for name in ("part-0.data", "part-1.data", "part-1.index"):
        with (folder / name).open("ab") as file:
            file.truncate(1 << 40)


@pytest.mark.parametrize(
    "lay", [hostile_link, hostile_hard_link, hostile_pipe, hostile_folder, hostile_sizes], ids=lambda lay: lay.__name__
)
def test_what_was_laid_into_the_folder_is_neither_followed_nor_waited_for(tmp_path: Path, lay: Any) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine" * 100)
    opened(tmp_path / "c", 9)
    lay(tmp_path / "c", outside)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 30), limit[1]))
    try:
        with quiet():
            dataset = opened(tmp_path / "c", 9)
            assert all(is_right(dataset[at], at) for at in range(9))
            assert all(is_right(opened(tmp_path / "c", 9)[at], at) for at in range(9))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)
    assert outside.read_bytes() == b"mine" * 100


def test_facts_that_are_hostile_or_damaged_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    opened(folder, 9)
    facts = folder / "cache.json"
    good = json.loads(facts.read_text())
    outside = tmp_path / "outside"
    outside.write_text(json.dumps(good))
    lay = {
        "is damaged": lambda: facts.write_bytes(b"\xff{}"),
        "damaged or of another": lambda: facts.write_text(json.dumps({**good, "more": 1})),
        "damaged, or|damaged or": lambda: facts.write_text("[" * 60_000),
        "kept as gobrrr.cache/0": lambda: facts.write_text(json.dumps({**good, "schema": "gobrrr.cache/0"})),
        "Too many levels of symbolic links": lambda: facts.symlink_to(outside),
        "it is no plain file": lambda: os.mkfifo(facts),
    }
    for said, put in lay.items():
        facts.unlink()
        put()
        with pytest.raises(GobrrrError, match=said):
            opened(folder, 9)


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(GobrrrError, match="holds other files and no cache"):
        opened(tmp_path, 3)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["notes"]
    with pytest.raises(GobrrrError, match="no cache in"):
        opened(tmp_path / "notes", 3)


def test_records_of_another_data_set_are_none_of_ours(tmp_path: Path) -> None:
    """Shards that were copied between folders: right checksums, of another fingerprint."""
    cache(range(5), tmp_path / "a", function=str, check=False)[1]
    opened(tmp_path / "b", 5)
    for path in files_of(tmp_path / "a"):
        (tmp_path / "b" / path.name).write_bytes(path.read_bytes())
    with quiet():
        assert is_right(opened(tmp_path / "b", 5)[1], 1)
