"""Sampled stacks become time by line: whose line, which library below it, working or waiting, in which phase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gobrrr.ledger.host.stacks import MAX_LIBRARIES, line_groups, qualified, read_stack, weighted
from gobrrr.ledger.loading.workers import kind_of, worker_groups
from gobrrr.ledger.model.ledger import LineGroup
from gobrrr.recording.model.event_kinds import RUNS, UNKNOWN, WAITS, WRITES
from gobrrr.recording.run_folder.run import Samples
from tests.support.timelines import sampled, worker

SITE = "/env/lib/python3.11/site-packages/"
Frame = tuple[str, str, int, bool]
TRAIN, LOSS = ("train.py", "main", 10, True), ("train.py", "loss_of", 20, True)
CALL = (SITE + "torch/nn/modules/module.py", "Module._wrapped_call_impl", 1775, False)
LINEAR = (SITE + "torch/nn/modules/linear.py", "Linear.forward", 125, False)
ENGINE = (SITE + "torch/autograd/graph.py", "_engine_run_backward", 825, False)
STEP = (SITE + "torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper", 485, False)
LOADER = (SITE + "torch/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 701, False)
SAVE = (SITE + "torch/serialization.py", "save", 900, False)
FETCH = (SITE + "torch/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", 52, False)
GETITEM = ("data.py", "Digits.__getitem__", 7, True)
COLLATE = ("data.py", "pad_batch", 30, True)
DECODE = (SITE + "PIL/Image.py", "Image.load", 99, False)
QUEUE = ("/usr/lib/python3.11/multiprocessing/queues.py", "Queue.get", 103, False)
SPAN = np.array([[0, 100]])


def samples(*rows: tuple[int, tuple[Frame, ...], int]) -> Samples:
    """(time, frames innermost first, CPU) of each sample."""
    frames = tuple(dict.fromkeys(frame for _, stack, _ in rows for frame in stack))
    return sampled(*((t, tuple(frames.index(f) for f in stack), cpu) for t, stack, cpu in rows), frames=frames)


def groups(*rows: tuple[int, tuple[Frame, ...], int], spans: Any = SPAN) -> list[LineGroup]:
    return line_groups(samples(*rows), np.array(spans))


def test_a_sample_stands_for_the_time_since_the_one_before() -> None:
    found = groups((30, (TRAIN,), 30), (40, (LOSS, TRAIN), 40), (100, (TRAIN,), 100))
    assert [(g.where[0].line, g.ns) for g in found] == [(10, 90.0), (20, 10.0)]
    assert [span.line for span in found[1].where] == [20, 10]


@pytest.mark.parametrize("spans", [[[10, 100]], [[10, 60], [60, 100]], [[10, 40], [70, 100]]])
def test_the_time_of_the_sampled_steps_is_given_out_whole(spans: list[list[int]]) -> None:
    """Before the first sample, after the last, and not between two steps, where another loop ran."""
    rows = [(t, (TRAIN if t % 20 else LOSS,), t) for t in range(15, 96, 5)]
    found = groups(*rows, spans=spans)
    assert sum(g.ns for g in found) * len(spans) == sum(end - begin for begin, end in spans)


def test_what_the_usual_step_has_of_a_line() -> None:
    """Steps of 10, 10 and 40: a line of each of them, and one of the long step alone."""
    rows = [(5, TRAIN), (10, LOSS), (15, TRAIN), (20, LOSS), (50, TRAIN), (55, LOSS), (60, TRAIN)]
    spans = [[0, 10], [10, 20], [20, 60]]
    found = {g.where[0].line: g for g in groups(*((t, (frame,), t) for t, frame in rows), spans=spans)}
    assert found[20].ns == 5 and found[20].usual_share == 1
    assert found[10].usual_share == 5 / ((5 + 5 + 35) / 3)
    (rare,) = (g for g in groups((20, (LOSS,), 20), (60, (TRAIN,), 60), spans=spans) if g.where[0].line == 10)
    assert rare.ns == 40 / 3 and rare.usual_share == 0


def test_samples_of_before_and_after_count_for_what_lies_inside() -> None:
    found = groups((5, (LOSS,), 5), (50, (TRAIN,), 50), (150, (LOSS,), 150), (160, (TRAIN,), 160), spans=[[20, 100]])
    assert {g.where[0].line: g.ns for g in found} == {10: 30.0, 20: 50.0}


def test_one_sample_stands_for_everything() -> None:
    (group,) = groups((50, (TRAIN,), 0))
    assert group.ns == 100.0 and not group.waiting, "its CPU time is not known"


def test_what_the_system_said_of_a_line_is_added_up() -> None:
    """Bytes are counted when a call ends, so they are those of the sample before."""
    rows = [(20, (TRAIN,), 20), (40, (LOSS,), 40), (60, (LOSS,), 60), (100, (TRAIN,), 100)]
    given = replace(samples(*rows), held=[RUNS, WRITES, WAITS, RUNS], wrote=[5, 5, 12, 1012])
    found = {group.where[0].line: group for group in line_groups(given, SPAN)}
    assert (found[20].held, found[20].writing, found[20].written) == (20.0, 20.0, 1007.0)
    assert (found[10].held, found[10].writing, found[10].written) == (0.0, 0.0, 0.0)
    unknown = line_groups(replace(given, held=[UNKNOWN, WRITES, WAITS, RUNS]), SPAN)
    assert {group.where[0].line: group.held for group in unknown} == {10: None, 20: 20.0}
    assert all(group.held is None for group in line_groups(replace(given, held=[], wrote=[]), SPAN))


def test_no_samples_are_no_lines() -> None:
    assert groups() == []
    assert line_groups(Samples(), np.zeros((0, 2), np.int64)) == []
    assert weighted(samples((5, (TRAIN,), 0)), np.zeros((0, 2), np.int64)) == []


def test_library_functions_below_a_line_are_named() -> None:
    rows = [(t, (SAVE, ("/usr/lib/python3.11/pickle.py", "dump", 3, False), TRAIN), t) for t in (50, 100)]
    (group,) = groups(*rows)
    assert group.library == ("torch.serialization.save", "pickle.dump")
    assert dict(group.libraries) == {"torch.serialization.save": 100.0, "pickle.dump": 100.0}
    assert group.where[0].line == 10 and group.own_share == 0.0


def test_what_a_line_computes_by_itself_is_told_apart() -> None:
    """NumPy and torch have no frames of their own."""
    (group,) = groups((30, (SAVE, TRAIN), 30), (100, (TRAIN,), 100))
    assert (group.ns, group.own_share) == (100.0, 0.7)


def test_a_function_that_calls_itself_is_counted_once() -> None:
    deep = (SITE + "copy.py", "deepcopy", 5, False), (SITE + "copy.py", "deepcopy", 9, False)
    (group,) = groups((100, (*deep, TRAIN), 100))
    assert group.libraries == (("copy.deepcopy", 100.0),)
    assert group.library == ("copy.deepcopy", "copy.deepcopy")


def test_only_the_most_common_libraries_are_kept() -> None:
    rows = [(10 * n, ((SITE + f"lib{n}.py", "f", 1, False), TRAIN), n) for n in range(1, 40)]
    (group,) = groups(*rows, spans=[[0, 400]])
    assert len(group.libraries) == MAX_LIBRARIES


def test_frames_of_libraries_above_the_users_are_not_below_them() -> None:
    (group,) = groups((100, (LINEAR, CALL, LOSS, CALL, TRAIN), 100))
    assert group.library == (
        "torch.nn.modules.linear.Linear.forward",
        "torch.nn.modules.module.Module._wrapped_call_impl",
    )
    assert [span.line for span in group.where] == [20, 10]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (SITE + "torch/__init__.py", "torch.f"),
        ("/usr/lib/python3/dist-packages/numpy/core/fromnumeric.py", "numpy.core.fromnumeric.f"),
        ("/usr/lib/python3.11/copy.py", "copy.f"),
        ("C:/env/Lib/site-packages/PIL/Image.py", "PIL.Image.f"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>.f"),
        ("/opt/app/tool.py", "tool.py.f"),
    ],
)
def test_library_functions_have_their_modules_name(file: str, name: str) -> None:
    assert qualified(file, "f") == name


@pytest.mark.parametrize(
    ("stack", "phase"),
    [
        ((TRAIN,), "other"),
        ((LINEAR, CALL, TRAIN), "forward"),
        ((ENGINE, TRAIN), "backward"),
        ((LINEAR, CALL, ENGINE, TRAIN), "backward"),  # recomputed
        ((STEP, TRAIN), "optimizer"),
        ((LINEAR, CALL, TRAIN, STEP, TRAIN), "forward"),  # in a closure
        ((ENGINE, TRAIN, STEP, TRAIN), "backward"),
        ((STEP, ENGINE, TRAIN), "backward"),  # an update inside a hook of the backward
        ((DECODE, GETITEM, FETCH, LOADER, TRAIN), "data"),
        ((LINEAR, CALL, GETITEM, FETCH, LOADER, TRAIN), "data"),  # a network inside the dataset
    ],
)
def test_phases_are_those_of_torchs_entry_points(stack: tuple[Frame, ...], phase: str) -> None:
    assert groups((100, stack, 100))[0].phase == phase
    windows = tuple((file.replace("/", "\\"), function, line, user) for file, function, line, user in stack)
    assert groups((100, windows, 100))[0].phase == phase


def test_one_line_in_two_phases_is_two_groups() -> None:
    found = groups((40, (LINEAR, CALL, TRAIN), 40), (100, (ENGINE, TRAIN), 100))
    assert [(g.phase, g.ns) for g in found] == [("backward", 60.0), ("forward", 40.0)]


def test_a_thread_that_uses_little_cpu_waits() -> None:
    asleep = groups((10, (TRAIN,), 10), (60, (LOSS,), 12), (100, (LOSS,), 14))
    assert {g.where[0].line: g.waiting for g in asleep} == {10: False, 20: True}
    busy = groups((10, (TRAIN,), 10), (60, (LOSS,), 50), (100, (LOSS,), 90))
    assert not any(g.waiting for g in busy)
    unknown = groups((10, (TRAIN,), -1), (60, (LOSS,), -1), (100, (LOSS,), -1))
    assert not any(g.waiting for g in unknown), "not seen is not zero"


def test_cpu_of_before_the_steps_is_not_theirs() -> None:
    found = groups((5, (TRAIN,), 1000), (100, (TRAIN,), 1010), spans=[[90, 100]])
    assert found[0].waiting, "10 of 95 ns worked"


def test_a_strangers_numbers_do_no_harm() -> None:
    odd = Samples((("a.py", "f", 1, True),), ((0, 7, -3),), [10, 20], [0, 9], [0, 0])
    (group,) = line_groups(odd, SPAN)
    assert [span.file for span in group.where] == ["a.py"]
    assert read_stack(odd, (99,)).where == ()


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        ((GETITEM, FETCH), "getitem"),
        ((DECODE, GETITEM, ("x", "<listcomp>", 1, False), FETCH), "getitem"),
        ((FETCH,), "getitem"),  # 3.12: the comprehension is the fetcher's own
        (((SITE + "torch/utils/data/_utils/collate.py", "default_collate", 398, False), FETCH), "collate"),
        ((COLLATE, FETCH), "collate"),
        (((SITE + "torch/functional.py", "stack", 3, False), COLLATE, FETCH), "collate"),
        (((SITE + "transformers/data/data_collator.py", "DataCollatorMixin.__call__", 3, False), FETCH), "collate"),
        ((QUEUE,), "other"),
        (((SITE + "mine/fetch.py", "fetch", 1, False),), "other"),
        ((GETITEM, (FETCH[0], "fetch", 52, False)), "getitem"),  # Python 3.10 knows no qualified names
        (
            (("data.py", "lines", 3, True), (FETCH[0], "_IterableDatasetFetcher.fetch", 33, False)),
            "getitem",
        ),
        ((COLLATE, (FETCH[0], "_IterableDatasetFetcher.fetch", 42, False)), "collate"),
    ],
)
def test_workers_read_and_collate(stack: tuple[Frame, ...], kind: str) -> None:
    read = read_stack(samples((1, stack, 1)), tuple(range(len(stack))))
    assert kind_of(read, frozenset({"pad_batch"})) == kind


def test_workers_time_is_per_batch_of_all_workers() -> None:
    one = samples((0, (QUEUE,), 0), (60, (DECODE, GETITEM, FETCH), 60), (80, (COLLATE, FETCH), 80), (100, (QUEUE,), 80))
    found = worker_groups((worker(one, batches=1), worker(one, batches=1)), 3, frozenset({"pad_batch"}))
    assert {(g.kind, g.ns, g.cpu_share) for g in found} == {
        ("getitem", 60.0, 1.0), ("collate", 20.0, 1.0), ("other", 20.0, 0.0)
    }  # fmt: skip
    assert found[0].loader == 3
    assert found[0].libraries == (("PIL.Image.Image.load", 60.0),)
    assert {(g.kind, g.own_share) for g in found} == {("getitem", 0.0), ("collate", 1.0), ("other", 0.0)}
    assert found[0].where[0].line == 7


def test_workers_without_samples_or_batches_are_nothing() -> None:
    assert worker_groups((), 0) == []
    assert worker_groups((worker(Samples(), 0),), 0) == []
    assert worker_groups((worker(samples((5, (GETITEM, FETCH), 5)), 1),), 0) == [], "one sample spans no time"


STACKS = st.sampled_from([(TRAIN,), (LOSS, TRAIN), (LINEAR, CALL, TRAIN), (QUEUE,)])
ROWS = st.lists(st.tuples(st.integers(0, 30), STACKS, st.integers(0, 40)), min_size=1, max_size=30)


@given(ROWS, st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50)), min_size=1, max_size=5))
def test_lines_sum_to_the_sampled_steps_whenever_the_samples_came(
    rows: list[Any], steps: list[tuple[int, int]]
) -> None:
    t = cpu = 0
    taken = []
    for apart, stack, worked in rows:
        t, cpu = t + apart + 1, cpu + worked
        taken.append((t, stack, cpu))
    spans, edge = [], 0
    for pause, length in steps:
        spans.append([edge + pause, edge + pause + length])
        edge = spans[-1][1]
    found = groups(*taken, spans=spans)
    assert sum(g.ns for g in found) * len(spans) == pytest.approx(sum(end - begin for begin, end in spans))
    assert [g.ns for g in found] == sorted((g.ns for g in found), reverse=True)
    for group in found:
        assert group.ns >= 0 and all(ns <= group.ns + 1e-9 for _, ns in group.libraries)


def test_this_interpreters_own_frames_are_read(tmp_path: Path) -> None:
    """What the sampler really writes: files of this environment."""
    import copy

    (group,) = groups((100, ((copy.__file__, "deepcopy", 128, False), TRAIN), 100))
    assert group.library == ("copy.deepcopy",)


DATALOADER = SITE + "torch/utils/data/dataloader.py"
NEXT_INDEX = (DATALOADER, "_BaseDataLoaderIter._next_index", 714, False)
TRY_GET = (DATALOADER, "_MultiProcessingDataLoaderIter._try_get_data", 1290, False)
RESET = (DATALOADER, "_MultiProcessingDataLoaderIter._reset", 1250, False)
DRAW = ("data.py", "Balanced.__iter__", 50, True)
LIB = "/usr/lib/python3.11/multiprocessing/"
POLL = (LIB + "connection.py", "_ConnectionBase.poll", 256, False)
SELECT = ("/usr/lib/python3.11/selectors.py", "_PollLikeSelector.select", 415, False)
RECV = (LIB + "connection.py", "Connection._recv", 378, False)
REBUILD = (SITE + "torch/multiprocessing/reductions.py", "rebuild_storage_fd", 541, False)
PINNED = ("/usr/lib/python3.11/queue.py", "Queue.get", 171, False)


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        ((DRAW, NEXT_INDEX, LOADER, TRAIN), "sampling"),
        ((NEXT_INDEX, LOADER, TRAIN), "sampling"),
        ((DRAW, RESET, TRAIN), "sampling"),  # an __iter__ that is no generator
        ((DRAW, (DATALOADER, "_BaseDataLoaderIter.__init__", 660, False), TRAIN), "sampling"),
        ((("data.py", "helper", 9, True), DRAW, RESET, TRAIN), "sampling"),
        ((("data.py", "helper", 9, True), RESET, TRAIN), ""),
        ((GETITEM, FETCH, LOADER, TRAIN), ""),
        ((DRAW, (SITE + "torch/utils/data/_utils/fetch.py", "_IterableDatasetFetcher.__init__", 27, False), RESET), ""),
        ((QUEUE, TRY_GET, LOADER, TRAIN), "receiving"),  # unpickling, which is C
        ((RECV, QUEUE, TRY_GET, LOADER, TRAIN), "receiving"),
        ((RECV, REBUILD, QUEUE, TRY_GET, LOADER, TRAIN), "receiving"),
        ((SELECT, POLL, QUEUE, TRY_GET, LOADER, TRAIN), ""),  # nothing there yet
        ((PINNED, TRY_GET, LOADER, TRAIN), ""),
        ((TRY_GET, LOADER, TRAIN), ""),
        ((QUEUE, TRAIN), ""),  # the program's own
        ((DRAW, TRAIN), ""),
    ],
)
def test_the_stage_of_a_wait_is_read_off_torch_s_functions(stack: tuple[Frame, ...], stage: str) -> None:
    (found,) = groups((100, stack, 40))
    assert found.stage == stage and found.cpu_share == 1.0


def test_stages_of_one_line_are_told_apart_with_their_cpu_time() -> None:
    around = (QUEUE, TRY_GET, LOADER, TRAIN)
    rows = (10, (TRAIN,), 0), (50, (RECV, *around), 10), (100, (SELECT, POLL, *around), 10)
    received, polled = (next(g for g in groups(*rows) if g.phase == "data" and g.stage == s) for s in ("receiving", ""))
    assert (received.ns, polled.ns) == (40.0, 50.0) and received.where == polled.where
    assert (received.cpu_share, polled.cpu_share) == (0.25, 0.0)


def test_what_threads_of_a_worker_send_is_its_cpu_time_per_batch() -> None:
    one = worker(samples((50, (GETITEM, FETCH), 50)), batches=2)
    kinds = {g.kind: g for g in worker_groups((replace(one, sent_cpu_ns=60), replace(one, sent_cpu_ns=20)), 0)}
    assert (kinds["sending"].ns, kinds["sending"].cpu_share) == (20.0, 1.0)
    for unknown in (None, 0):
        assert "sending" not in {g.kind for g in worker_groups((replace(one, sent_cpu_ns=unknown),), 0)}
