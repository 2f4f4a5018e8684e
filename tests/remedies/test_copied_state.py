"""Workers see what the program changes between epochs: which changes are noticed, and what makes no new workers."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import random
import resource
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset  # noqa: E402

from gobrrr.data.sample_cache.names import is_installed  # noqa: E402
from gobrrr.remedies.loader.copied_state import BYTES, LONG, MOST, CopiedState, TooMuch  # noqa: E402
from gobrrr.remedies.loader.workers_kept import MOST_KEPT, Renewed, _in_own_memory, _next_descriptor, is_short  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402

LEVEL = 0
settings = types.ModuleType("settings")
settings.level = 0  # type: ignore[attr-defined]


class Slotted:
    __slots__ = ("p",)

    def __init__(self) -> None:
        self.p = 0.1


class Transform:
    def __init__(self) -> None:
        self.p = 0.1


class Curriculum(Dataset):  # type: ignore[type-arg]
    """Gives the epoch that it was told, and the process that reads it."""

    limit = 1

    def __init__(self) -> None:
        self.epoch, self.nan = 0, float("nan")
        self.config = {"noise": 0.1, "steps": [1, 2]}
        self.transforms = [Transform(), Slotted()]
        self.x, self.array = torch.zeros(4), np.zeros(4)
        self.rows, self.half = np.arange(4096.0).reshape(4, 1024), torch.zeros(4, 2, dtype=torch.bfloat16).T
        self.labels = np.array(["dog", None], dtype=object)
        self.long = list(range(LONG + 1))
        self.generator, self.own = np.random.default_rng(0), random.Random(0)
        self.torch = torch.Generator()
        self.call = functools.partial(int, "1")
        self.me = self  # a ring

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([self.epoch, next(LEVEL for _ in range(1)) + settings.level, os.getpid()])


@contextlib.contextmanager
def applied(*names: str) -> Iterator[Seams]:
    seams = Seams()
    install(seams, names)
    try:
        yield seams
    finally:
        seams.remove()


def epochs(loader: Any, data: Any, tell: bool = True) -> tuple[list[int], int]:
    """The epochs that its samples knew, and in how many processes they were made."""
    rows = []
    for epoch in range(3):
        if tell:
            data.epoch = epoch
        rows.append(torch.cat(list(loader)))
    return [int(each[0, 0]) for each in rows], len(set(torch.cat(rows)[:, 2].tolist()))


@pytest.mark.parametrize(
    ("names", "workers"),
    [
        (["one_worker"], 0),
        (["loader_workers"], 0),
        (["loader_workers"], 1),
        (["persistent_workers"], 1),
        (["one_worker", "persistent_workers"], 0),
    ],
)
def test_workers_know_the_epoch(names: list[str], workers: int) -> None:
    data = Curriculum()
    with applied(*names):
        loader = DataLoader(data, num_workers=workers)
        assert loader.num_workers and epochs(loader, data)[0] == [0, 1, 2]


@pytest.mark.parametrize(
    ("names", "workers"), [(["persistent_workers"], 1), (["one_worker"], 0), (["one_worker", "persistent_workers"], 0)]
)
def test_workers_live_on_where_nothing_changes(names: list[str], workers: int) -> None:
    data = Curriculum()
    with applied(*names):
        sampler = RandomSampler(data)
        loader = DataLoader(data, num_workers=workers, sampler=sampler)
        rows = []
        for epoch in range(3):
            sampler.epoch = epoch  # type: ignore[attr-defined]
            rows += list(loader)
        assert len(set(torch.cat(rows)[:, 2].tolist())) == 1, "a sampler stays in the program's process"


@pytest.mark.parametrize("generator", [None, 5])
def test_the_programs_own_draws_stay_what_they_were(generator: int | None) -> None:
    """torch draws a seed for an iterator's workers; those that stayed drew none, and from the second epoch on the order
    of the samples was another one."""

    def drawn(names: list[str]) -> list[Any]:
        torch.manual_seed(0)
        own = torch.Generator().manual_seed(generator) if generator is not None else None
        with applied(*names):
            loader = DataLoader(list(range(20)), shuffle=True, num_workers=1, generator=own)
            return [(torch.cat(list(loader)).tolist(), torch.rand(1).item()) for _ in range(3)]

    assert drawn(["persistent_workers"]) == drawn([])


def test_what_the_user_made_persistent_stays_so() -> None:
    data = Curriculum()
    with applied("persistent_workers"):
        loader = DataLoader(data, num_workers=1, persistent_workers=True)
        assert epochs(loader, data) == ([0, 0, 0], 1)
    with applied("loader_workers"):
        assert DataLoader(data, num_workers=1, persistent_workers=True).persistent_workers is True
        assert isinstance(DataLoader(data, num_workers=1).persistent_workers, Renewed)


def test_a_loader_made_like_another_looks_too_and_none_does_without_the_remedy() -> None:
    data = Curriculum()
    with applied("persistent_workers"):
        first = DataLoader(data, num_workers=1)
        second = DataLoader(data, num_workers=1, persistent_workers=first.persistent_workers)
        assert isinstance(second.persistent_workers, Renewed) and epochs(second, data)[0] == [0, 1, 2]
    assert not second.persistent_workers and epochs(second, data)[0] == [0, 1, 2]
    assert epochs(second, data, tell=False)[1] == 3, "as the program wrote it"


def test_an_iterator_that_is_in_use_goes_on_when_others_are_made() -> None:
    data = Curriculum()
    with applied("persistent_workers"):
        loader = DataLoader(data, num_workers=1)
        first = iter(loader)
        next(first)
        data.epoch = 7
        assert torch.cat(list(loader))[0, 0] == 7 and len(list(first)) == 3


def within_itself(loader: Any) -> Iterator[Any]:
    """Two epochs, the training data evaluated on within them, after the last step as well."""
    for _ in range(2):
        for step, rows in enumerate(loader, 1):
            yield rows.tolist()
            if step % 5 == 0:
                yield [more.tolist() for more, _ in zip(loader, range(3), strict=False)]


def beside_itself(loader: Any) -> Iterator[Any]:
    for _ in range(2):
        yield [(one.tolist(), other.tolist()) for one, other in zip(loader, loader, strict=True)]


def one_that_waits(loader: Any) -> Iterator[Any]:
    """A batch to look at, of an iterator that is kept."""
    first = iter(loader)
    yield next(first).tolist()
    for _ in range(2):
        yield [rows.tolist() for rows in loader]
    yield [rows.tolist() for rows in first]


def one_that_is_over(loader: Any) -> Iterator[Any]:
    first = iter(loader)
    yield [rows.tolist() for rows in first]
    second = iter(loader)
    yield next(first, "over")
    yield [rows.tolist() for rows in second]


@pytest.mark.parametrize("loop", [within_itself, beside_itself, one_that_waits, one_that_is_over])
@pytest.mark.parametrize(("name", "before"), [("one_worker", 0), ("persistent_workers", 1)])
def test_each_loop_over_a_loader_has_an_epoch_of_its_own(name: str, before: int, loop: Callable[[Any], Any]) -> None:
    def drawn(workers: int) -> Any:
        torch.manual_seed(0)
        return list(loop(DataLoader(list(range(20)), 2, shuffle=True, num_workers=workers))), torch.rand(1).item()

    plain = drawn(1)
    with applied(name):
        assert drawn(before) == plain


@pytest.mark.parametrize("batches", [3, None], ids=["left early", "counted to its end"])
def test_an_iterator_that_gives_no_more_has_its_workers_reused(batches: int | None) -> None:
    """A trainer that counts its steps never hears that an epoch is over, and holds its iterator until the next."""
    loaded = []
    with applied("one_worker"):
        loader = DataLoader(Curriculum())
        for _ in range(3):
            iterator = iter(loader)
            loaded += [next(iterator) for _ in range(batches or len(iterator))]
            if batches:
                del iterator
        assert len(set(torch.cat(loaded)[:, 2].tolist())) == 1


def test_workers_of_the_last_loaders_alone_stay() -> None:
    """A program with a loader for each client had as many processes, until no file could be opened."""
    with applied("one_worker"):
        loaders = [DataLoader(Curriculum()) for _ in range(MOST_KEPT + 2)]
        first, *others = [iter(loader) for loader in loaders]
        next(first)
        assert [loader._iterator is not None for loader in loaders] == [False] * 2 + [True] * MOST_KEPT
        assert len(list(first)) == 3, "who iterates goes on"
        del first, others
        again = [torch.cat(list(loader))[0, 2].item() for loader in loaders[2:] * 2]
        assert again[:MOST_KEPT] == again[MOST_KEPT:]
        assert len(multiprocessing.active_children()) == MOST_KEPT


@contextlib.contextmanager
def descriptors(most: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors in use are counted there")
def test_batches_that_the_program_keeps_leave_it_descriptors() -> None:
    used = len(list(Path("/proc/self/fd").iterdir()))
    with descriptors(2 * used + 100), applied("one_worker"):
        loader = DataLoader([(torch.full((3,), float(each)), each) for each in range(200)], 2)  # type: ignore[arg-type]
        kept = list(loader)
    assert torch.cat([labels for _, labels in kept]).tolist() == [*range(200)]
    assert torch.cat([rows for rows, _ in kept])[:, 2].tolist() == [*range(200)]
    shared = [rows.is_shared() for rows, _ in kept]
    assert shared[0] and not shared[-1], "copied once half of them are taken"


def test_loaders_go_without_workers_where_descriptors_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    with applied("one_worker", "persistent_workers"):
        ours, theirs = DataLoader(Curriculum()), DataLoader(Curriculum(), num_workers=1)
        monkeypatch.setattr("gobrrr.remedies.loader.workers_kept.is_short", lambda: True)
        assert torch.cat(list(ours))[:, 2].unique().tolist() == [os.getpid()]
        assert os.getpid() not in torch.cat(list(theirs))[:, 2]
        assert next(iter(theirs)).is_shared(), "batches of workers that the program asked for stay as they are"
        assert ours.num_workers == 1, "for this time only"


def test_a_pinned_batch_is_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobrrr.remedies.loader.workers_kept.is_short", lambda: True)
    (alone := Renewed(True)).alone = True
    plain, pinned = (types.SimpleNamespace(_persistent_workers=alone, _pin_memory=each) for each in (False, True))
    batch = torch.ones(1)
    assert _in_own_memory(pinned, batch) is batch is not _in_own_memory(plain, batch)


def test_a_look_at_descriptors_takes_none() -> None:
    assert _next_descriptor() == _next_descriptor()


@pytest.mark.parametrize(("free", "short"), [(4, True), (5, False)])
def test_memory_for_what_processes_share_is_short_from_half_of_it_on(
    free: int, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: types.SimpleNamespace(f_bavail=free, f_blocks=10))
    monkeypatch.setattr("gobrrr.remedies.loader.workers_kept.descriptors", lambda: float("inf"))
    assert is_short() == short


def test_workers_begin_as_the_program_says_now() -> None:
    level = 0
    with applied("persistent_workers"):
        data = Curriculum()
        loader = DataLoader(data, num_workers=1, worker_init_fn=lambda _: setattr(data, "epoch", level))
        for level in (3, 3, 4):
            assert torch.cat(list(loader))[0, 0] == level


def test_what_cannot_be_looked_at_is_made_anew() -> None:
    class Shy(Curriculum):
        def __getattribute__(self, name: str) -> Any:
            if name == "__dict__":
                raise RuntimeError("not for you")
            return super().__getattribute__(name)

    data = Shy()
    with applied("persistent_workers"):
        assert epochs(DataLoader(data, num_workers=1), data)[0] == [0, 1, 2]


def _level(data: Curriculum) -> None:
    global LEVEL
    LEVEL += 1


def _class_attribute(data: Curriculum) -> None:
    Curriculum.limit += 1


SEEN: dict[str, Callable[[Any], Any]] = {
    "value": lambda d: setattr(d, "epoch", 1),
    "type": lambda d: setattr(d, "epoch", False),
    "new attribute": lambda d: setattr(d, "extra", None),
    "entry": lambda d: d.config.update(noise=0.2),
    "list in a dict": lambda d: d.config["steps"].append(3),
    "one of its transforms": lambda d: setattr(d.transforms[0], "p", 0.2),
    "slot": lambda d: setattr(d.transforms[1], "p", 0.2),
    "tensor in place": lambda d: d.x.add_(1),
    "another tensor": lambda d: setattr(d, "x", torch.zeros(4)),
    "another array": lambda d: setattr(d, "array", np.zeros(4)),
    "shape": lambda d: d.array.resize((2, 2), refcheck=False),
    "long list": lambda d: d.long.append(1),
    "entry of a long list": lambda d: d.long.__setitem__(3, -1),
    "array in place": lambda d: d.array.__setitem__(2, 1e-9),
    "an order within 4 KiB": lambda d: d.rows.__setitem__((0, slice(512)), np.random.default_rng(0).permutation(512)),
    "two that change places": lambda d: d.rows.__setitem__((0, [7, 8]), d.rows[0, [8, 7]]),
    "two pairs that change places": lambda d: d.rows.__setitem__(
        (0, [0, 1, 10, 11, 20, 21]), d.rows[0, [1, 0, 11, 10, 21, 20]]
    ),
    "two that make up for each other": lambda d: d.rows.view(np.int64).__setitem__(
        (0, slice(2, 4)), d.rows.view(np.int64)[0, 2:4] + np.array([1, -1])
    ),
    "rows that change places": lambda d: d.rows.__setitem__(slice(None), d.rows[::-1].copy()),
    "tensor in place, uncounted": lambda d: d.x.data.add_(1),
    "tensor through NumPy": lambda d: d.half.view(torch.int16).numpy().__setitem__(0, 1),
    "labels as objects": lambda d: d.labels.__setitem__(0, "cat"),
    "numpy's generator": lambda d: d.generator.random(),
    "Python's generator": lambda d: d.own.random(),
    "torch's generator": lambda d: d.torch.manual_seed(3),
    "partial": lambda d: setattr(d, "call", functools.partial(int, "2")),
    "global": _level,
    "module": lambda d: setattr(settings, "level", settings.level + 1),
    "class attribute": _class_attribute,
}


@pytest.mark.parametrize("what", SEEN)
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a Subset"])
def test_changes_are_seen(what: str, inside: bool) -> None:
    data = Curriculum()
    things = (Subset(data, [0, 1]) if inside else data, None)
    before = CopiedState(things)
    assert before.is_still(CopiedState(things)), "nothing has happened yet"
    SEEN[what](data)
    assert not before.is_still(CopiedState(things))


def test_what_a_collate_function_closes_over_is_seen() -> None:
    level = 0

    def collate(rows: Any) -> Any:
        return [level, *rows]

    before = CopiedState([collate])
    assert before.is_still(CopiedState([collate]))
    level = 1
    assert not before.is_still(CopiedState([collate]))


def test_an_address_that_another_object_has_now_is_no_sameness() -> None:
    data = Curriculum()
    before = CopiedState([data])
    for _ in range(50):
        address = id(data.array)
        data.array = None  # type: ignore[assignment]
        data.array = np.zeros(4)
        if id(data.array) == address:
            break
    assert not before.is_still(CopiedState([data]))


@pytest.mark.parametrize(
    "much",
    [
        np.broadcast_to(np.zeros(1), ((BYTES >> 3) + 1,)),
        torch.zeros(1).expand((BYTES >> 2) + 1),
        [object() for _ in range(LONG + 1)],
        [[Transform() for _ in range(LONG)] for _ in range(MOST // LONG)],
    ],
    ids=["array", "tensor", "objects in a long list", "objects in all"],
)
def test_what_is_too_much_to_look_at_has_workers_of_each_epoch(much: Any) -> None:
    with pytest.raises(TooMuch):
        CopiedState([much])
    data = Curriculum()
    data.much = much
    with applied("persistent_workers"):
        assert epochs(DataLoader(data, num_workers=1), data, tell=False)[1] == 3


@pytest.mark.parametrize(("place", "is_package"), [("lib/python3.11/site-packages", True), ("project", False)])
def test_packages_of_an_environment_beneath_are_packages(
    place: str, is_package: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("beneath")
    module.__file__ = f"/opt/base/{place}/beneath/__init__.py"
    monkeypatch.setitem(sys.modules, "beneath", module)
    is_installed.cache_clear()
    assert is_installed("beneath") == is_package
    is_installed.cache_clear()
