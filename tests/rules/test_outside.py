"""What a look from outside says of stacks whose meaning is known: kinds, roles, the line, the sentence."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.recording.live import spied
from gobrrr.recording.live.outside import Seen
from gobrrr.recording.model.facts import Span
from gobrrr.recording.run_folder.run import Samples
from gobrrr.rules.outside import kinds, look
from gobrrr.rules.outside.build import look as built
from gobrrr.rules.outside.look import Line, Look, Process
from gobrrr.rules.outside.verdict import unknown, verdict, waited
from gobrrr.system.process_tree import Reading
from tests.support.py_spy import RECORDED

TORCH = "/venv/lib/python3.12/site-packages/torch/"
LIB = "/usr/lib/python3.12/"
MINE = ("/home/user/train.py", "main", 12, True)


def sampled(*stacks: list[tuple[str, str]], times: int = 1) -> Samples:
    """Stacks of library frames, innermost first, below line 12 of the user's; each seen so many times."""
    frames = [MINE, *{(file, name, 1, False): 0 for stack in stacks for file, name in stack}]
    numbers = tuple((*(frames.index((file, name, 1, False)) for file, name in stack), 0) for stack in stacks)
    return Samples(tuple(frames), numbers, stack=list(range(len(stacks))) * times)


def kind_of(stack: list[tuple[str, str]], text: str = "") -> str:
    (kind,) = kinds.process(7, {7: sampled(stack)}, lambda file, line: text).kinds
    return kind


LOADER, FETCHER = TORCH + "utils/data/dataloader.py", TORCH + "utils/data/_utils/fetch.py"
NEXT = [(LOADER, "_MultiProcessingDataLoaderIter._try_get_data"), (LOADER, "_BaseDataLoaderIter.__next__")]
QUEUES, CONNECTION = LIB + "multiprocessing/queues.py", LIB + "multiprocessing/connection.py"


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        ([(LIB + "selectors.py", "select"), (CONNECTION, "poll"), (QUEUES, "Queue.get"), *NEXT], look.DATA),
        ([(LIB + "queue.py", "Queue.get"), *NEXT], look.DATA),
        ([(TORCH + "multiprocessing/reductions.py", "rebuild_storage_fd"), (QUEUES, "Queue.get"), *NEXT], look.RECEIVE),
        ([(FETCHER, "_MapDatasetFetcher.fetch"), (LOADER, "_SingleProcessDataLoaderIter._next_data")], look.FETCH),
        ([(TORCH + "nn/modules/linear.py", "forward"), (TORCH + "nn/modules/module.py", "_wrapped_call_impl")],
         look.FORWARD),
        ([(TORCH + "autograd/graph.py", "_engine_run_backward"), (TORCH + "_tensor.py", "backward")], look.BACKWARD),
        ([(TORCH + "optim/adam.py", "step"), (TORCH + "optim/optimizer.py", "wrapper")], look.OPTIMIZER),
        ([(TORCH + "distributed/distributed_c10d.py", "all_reduce")], look.RANKS),
        ([(TORCH + "cuda/__init__.py", "synchronize")], look.DEVICE),
        ([(TORCH + "serialization.py", "_save"), (TORCH + "serialization.py", "save")], look.SAVING),
        ([(TORCH + "serialization.py", "_load"), (TORCH + "serialization.py", "load")], look.LOADING),
        ([(LIB + "logging/__init__.py", "emit"), (LIB + "logging/__init__.py", "info")], look.SAVING),
        ([(TORCH + "_tensor_str.py", "_str"), (TORCH + "_tensor.py", "__format__")], look.SAVING),
        ([(TORCH + "_dynamo/convert_frame.py", "_compile"), (TORCH + "_dynamo/eval_frame.py", "_fn")], look.COMPILE),
        ([(TORCH + "_dynamo/eval_frame.py", "_fn")], look.OTHER),
        ([(LIB + "threading.py", "Condition.wait"), (LIB + "threading.py", "Event.wait")], look.WAITS),
        ([("<frozen importlib._bootstrap>", "_find_and_load")], look.IMPORTS),
        ([(LIB + "subprocess.py", "Popen.wait")], look.WAITS),
    ],
)  # fmt: skip
def test_what_a_stack_does_is_told_by_its_library_frames(stack: list[tuple[str, str]], kind: str) -> None:
    assert kind_of(stack) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("total += loss.item()", look.DEVICE), ("seen.append(x.cpu())", look.DEVICE),
        ('print(f"step {step}")', look.SAVING), ("time.sleep(0.1)", look.WAITS), ("lock.acquire()", look.WAITS),
        ("pickle.dump(big.numpy(), pipe)", look.OTHER), ("print(loss.item())", look.OTHER),
        ("total = a @ b", look.OTHER), ("items(x)", look.OTHER), ("blueprint(x)", look.OTHER), ("", look.OTHER),
    ],
)  # fmt: skip
def test_what_a_line_calls_of_c_is_told_by_its_text(text: str, kind: str) -> None:
    assert kind_of([], text) == kind
    under = [(TORCH + "nn/functional.py", "relu")]
    assert kind_of(under, text) == look.OTHER, "what has a frame is told by that"


def test_a_module_that_trains_while_it_is_imported_does_not_still_start() -> None:
    engine = (TORCH + "autograd/graph.py", "_engine_run_backward", 1, False)
    imports = ("<frozen importlib._bootstrap>", "_find_and_load", 1, False)
    frames = (engine, ("/home/user/mod.py", "<module>", 5, True), imports, MINE)
    found = kinds.process(7, {7: Samples(frames, ((0, 1, 2, 3),), stack=[0])}, lambda file, line: "")
    assert [*found.kinds] == [look.BACKWARD]


def test_a_loader_and_its_worker_as_recorded() -> None:
    main = kinds.process(4100, spied.read(RECORDED / "loader_main.json"), lambda file, line: "")
    worker = kinds.process(4107, spied.read(RECORDED / "loader_worker.json"), lambda file, line: "")
    assert main.role == look.PROGRAM and main.thread == 4100
    assert main.kinds[look.DATA] + main.kinds[look.RECEIVE] > 0.85
    assert main.lines[0].where == Span("/home/user/train.py", 26, "main")
    assert worker.role == look.WORKER
    where = worker.lines[0].where
    assert where is not None and where.function == "Numbers.__getitem__" and where.line in (14, 15)
    seen = Seen(4100, 3.0, samples={4100: spied.read(RECORDED / "loader_main.json"),
                                    4107: spied.read(RECORDED / "loader_worker.json")})  # fmt: skip
    said = built(seen).verdict
    assert "wait for the loader, at train.py:26 in main; its workers are at train.py:1" in said
    assert "Numbers.__getitem__" in said


FETCH = (FETCHER, "_MapDatasetFetcher.fetch")
LOOP = (TORCH + "utils/data/_utils/worker.py", "_worker_loop")


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        ([("/home/user/data.py", "Rows.__getitem__"), FETCH, LOOP], look.FETCH),
        ([("/home/user/data.py", "decode"), ("/home/user/data.py", "Rows.__getitem__"), FETCH, LOOP], look.FETCH),
        ([("/home/user/data.py", "pad"), FETCH, LOOP], look.COLLATE),
        ([(QUEUES, "Queue.get"), LOOP], look.WAITS),
    ],
)
def test_what_a_worker_does_is_told_without_the_frames_that_it_was_forked_with(
    stack: list[tuple[str, str]], kind: str
) -> None:
    frames = tuple((file, name, 3, "/home/" in file) for file, name in stack)
    forked = Samples((*frames, MINE), (tuple(range(len(frames) + 1)),), stack=[0])
    found = kinds.process(8, {8: forked}, lambda file, line: "")
    assert (found.role, [*found.kinds]) == (look.WORKER, [kind])
    where = found.lines[0].where
    assert where is None or where.file == "/home/user/data.py"


def test_a_loop_in_another_thread_is_the_one_that_is_told() -> None:
    waits = sampled([(LIB + "threading.py", "Thread.join")], times=9)
    trains = sampled([(TORCH + "autograd/graph.py", "_engine_run_backward")], times=3)
    found = kinds.process(7, {7: waits, 9: trains}, lambda file, line: "")
    assert (found.thread, [*found.kinds]) == (9, [look.BACKWARD])


def one(pid: int = 7, line: int = 12, rank: int | None = None, awake: float | None = 1.0, **shares: float) -> Process:
    lines = tuple(Line(Span("/home/user/train.py", line, "step"), kind, part) for kind, part in shares.items())
    return Process(pid, look.PROGRAM, 400, shares, lines, pid, rank, awake, 0.0)


def said(*processes: Process, **facts: Any) -> str:
    return verdict(Look(7, "python train.py", 10.0, processes, busy_cores=1.0, **facts))


@pytest.mark.parametrize("kind", ["data", "fetch", "device", "saving", "waits", "compile", "imports", "other"])
def test_what_stands_out_is_said_with_its_line(kind: str) -> None:
    assert said(one(**{"forward": 0.5, kind: 0.5})).startswith(
        ("50.0 % of the samples ", "No wait stands out; 50.0 % of the samples ")
    )
    assert "train.py:12 in step" in said(one(**{"forward": 0.5, kind: 0.5}))


def test_a_program_that_computes_is_accused_of_nothing() -> None:
    told = said(one(forward=0.3, backward=0.5, optimizer=0.1, data=0.05, device=0.05))
    assert told == "Nothing stands out: forward 30.0 %, backward 50.0 %, optimizer 10.0 %."


def test_a_kind_that_many_lines_share_names_two() -> None:
    lines = tuple(Line(Span("/home/user/train.py", n, "step"), "saving", 0.2) for n in (3, 5, 8))
    told = said(Process(7, look.PROGRAM, 400, {"saving": 0.6, "forward": 0.4}, lines, 7))
    assert told == ("60.0 % of the samples save, print or log, most at train.py:3 in step (20.0 %) and "
                    "train.py:5 in step (20.0 %).")  # fmt: skip


def test_workers_that_make_few_samples_are_not_at_a_line() -> None:
    lines = (Line(None, look.WAITS, 0.9), Line(Span("/home/user/data.py", 5, "pad"), look.COLLATE, 0.1))
    worker = Process(9, look.WORKER, 100, {"waits": 0.9, "collate": 0.1}, lines, 9)
    assert "its workers make samples in 10.0 % of theirs" in said(one(data=1.0), worker)
    busy = Process(9, look.WORKER, 100, {"collate": 1.0}, (Line(Span("/a/data.py", 5, "pad"), look.COLLATE, 0.6),), 9)
    assert "its workers are at data.py:5 in pad (60.0 % of their samples)" in said(one(data=1.0), busy)


def test_crowded_cores_are_said() -> None:
    crowded = Process(7, look.PROGRAM, 400, {"data": 1.0}, one(data=1.0).lines, 7, queued=0.3)
    assert said(crowded).endswith("The cores are crowded: its main thread lacked one for 30.0 % of the time.")
    assert "crowded" not in said(one(data=1.0))


def test_few_samples_are_said_to_be_few() -> None:
    few = Process(7, look.PROGRAM, 9, {"data": 1.0}, one(data=1.0).lines, 7)
    assert verdict(Look(7, "", 1.0, (few,))).endswith("These are 9 samples alone.")


def test_a_rank_that_waits_in_its_backward_pass_waits_for_the_other_one() -> None:
    fast = one(7, rank=0, awake=0.4, forward=0.2, backward=0.8)
    slow = one(8, line=30, rank=1, awake=0.99, forward=0.2, backward=0.2, other=0.6)
    told = said(fast, slow)
    assert told.startswith("Rank 0 waits for other ranks in 60.0 % of its samples, least does rank 1 (1.0 %)")
    assert told.endswith("which is more often at train.py:30 in step.")
    assert waited(slow) < 0.02 and waited(fast) == pytest.approx(0.6)
    assert "waits for other ranks" not in said(slow, one(9, rank=0, forward=0.4, backward=0.6))


def test_the_slow_rank_is_at_the_place_that_it_has_more_of_than_the_other() -> None:
    def rank(number: int, waits: float, **shares: float) -> Process:
        lines = (Line(Span("/a/t.py", 3, name), "forward", share) for name, share in shares.items())
        return Process(number, look.PROGRAM, 400, {"ranks": waits, "forward": 1 - waits}, (*lines,), number, number)

    fast, slow = rank(0, 0.4, model=0.5, batch=0.1, step=0.05), rank(1, 0.0, model=0.52, batch=0.3)
    assert said(fast, slow).endswith("which is more often at t.py:3 in batch.")
    below = rank(1, 0.0, model=0.2)
    assert said(rank(0, 0.4, model=0.5, step=0.05), below).endswith("more often at t.py:3 in model.")
    assert "other ranks" not in said(fast, rank(1, 0.0)), "it is nowhere"


def test_a_rank_is_the_process_of_it_that_trains() -> None:
    fast, slow = one(7, rank=0, ranks=0.4, forward=0.6), one(8, line=30, rank=1, forward=1.0)
    helper, stranger = one(9, line=99, rank=0, waits=1.0), one(10, ranks=1.0)
    told = said(fast, slow, helper, stranger)
    assert told.startswith("Rank 0 waits for other ranks in 40.0 %") and "least does rank 1 (0.0 %)" in told
    assert "other ranks" not in said(fast, helper, stranger)


def test_a_thread_beside_the_main_one_has_not_slept() -> None:
    """`awake` is the main thread's."""
    assert one(awake=0.1, forward=1.0).slept == pytest.approx(0.9)
    assert replace(one(awake=0.1, forward=1.0), thread=8).slept == 0.0


def test_nothing_moves_where_all_stand_at_one_line_and_no_core_is_busy() -> None:
    still = Look(7, "", 10.0, (one(waits=1.0, awake=0.0),), busy_cores=0.001)
    assert verdict(still).startswith("Nothing moves: in all samples pid 7 is at train.py:12 in step")
    for busy in ({"busy_cores": 0.4}, {"busy_cores": 0.001, "switches": 100.0}, {"busy_cores": None}):
        assert "Nothing moves" not in verdict(Look(7, "", 10.0, (one(waits=1.0, awake=0.0),), **busy))


def test_sleep_that_no_frame_explains_is_among_what_is_unknown() -> None:
    slept = Look(7, "", 10.0, (one(awake=0.3, forward=1.0),))
    assert unknown(slept)[0] == "pid 7 slept 70.0 % of the time in calls that have no frame"
    waits = Process(7, look.PROGRAM, 9, {"data": 0.5, "forward": 0.5}, (), 7, awake=0.3, queued=0.05)
    assert waits.slept == pytest.approx(0.15)
    assert len(unknown(Look(7, "", 10.0, (one(forward=1.0),)))) == len(unknown(slept)) - 1


def test_a_program_that_sleeps_without_a_frame_is_not_said_to_wait_for_nothing() -> None:
    assert said(one(awake=0.1, other=1.0)).startswith("It slept 90.0 % of the time in calls that have no frame; 100")
    assert said(one(other=1.0)).startswith("No wait stands out; ")


def test_rates_are_of_the_processes_that_were_there_long_enough() -> None:
    def reading(at: float, cpu_s: float, rss: int, awake_ns: int = 0) -> Reading:
        return Reading(at, cpu_s, rss, 3, 10, 1, awake_ns, 0)

    seen = Seen(7, 10.0, samples={7: {7: sampled([])}})
    seen.facts[7] = {"cmdline": ["python3", "train.py", "--token", "hf_" + "a" * 34]}
    seen.readings = {7: [reading(0.0, 1, 100), reading(10.0, 6, 300, 5 * 10**9)], 8: [reading(9.9, 1, 50)],
                     9: [reading(9.9, 1, 50), reading(10.0, 9, 50)], 10: [Reading(0.0), Reading(10.0)]}  # fmt: skip
    found = built(seen)
    assert (found.busy_cores, found.threads, found.read_rate, found.rss_bytes) == (0.5, 9, None, 350)
    assert found.rss_growth == pytest.approx(25.0)
    assert found.processes[0].awake == pytest.approx(0.5)
    assert found.next.startswith("gobrrr run train.py") and "aaaa" not in found.next + found.program


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("/venv/bin/python", "-m", "pkg.train", "-x"), "gobrrr run -m pkg.train -x"),
        (("/venv/bin/python", "/venv/bin/torchrun", "--nproc-per-node", "2", "a.py"),
         "gobrrr run -- torchrun --nproc-per-node 2 a.py"),
        (("python", "-u", "a.py"), "gobrrr run -- python -u a.py"),
        ((), "gobrrr run script.py"),
    ],
)  # fmt: skip
def test_the_next_command_is_the_programs_own(command: tuple[str, ...], told: str) -> None:
    assert built(Seen(7, samples={7: {}}, facts={7: {"cmdline": command}})).next == told
