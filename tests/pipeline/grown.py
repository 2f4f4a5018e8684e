"""Kineto traces whose truth is known: a host and its device simulated in whole microseconds, and who owns each of them.

The truth is painted microsecond by microsecond from what was planted; nothing of gobrrr is asked.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

BASE = 1_790_857_026_000_000_000
HOST, DEVICE = 4711, 0
LATENCY = 6
"""us from the return of a launch to the begin of its kernel on an idle stream."""
CALL = 4
"""us of a call into the runtime that waits for nothing."""
COMPUTE, COPIES, COLLECTIVES = 7, 20, 24
"""Streams."""
DEVICES = (
    ("Tesla V100-SXM2-32GB", 7, 0, 34_089_730_048, 80), ("NVIDIA A100-SXM4-80GB", 8, 0, 85_024_768_000, 108),
    ("NVIDIA H100 80GB HBM3", 9, 0, 85_052_358_656, 132),
)  # fmt: skip
KINDS = {COMPUTE: "work", COPIES: "copy", COLLECTIVES: "communication"}
CAUSES = ("data", "sync", "overhead", "host", "communication", "transfer", "stalled")
PRIORITY = ("stalled", "data_wait", "sync", "dispatch", "host")
"""Who owns an idle microsecond that several could."""


@dataclass
class Grown:
    """A trace as it grows; times in us since its begin."""

    shapes: bool = True
    stacks: bool = False
    device: int = 1
    rank: int | None = None
    world: int = 4
    events: list[dict[str, Any]] = field(default_factory=list)
    now: int = 1000
    steps: list[tuple[int, int]] = field(default_factory=list)
    free: dict[int, int] = field(default_factory=lambda: {COMPUTE: 0, COPIES: 0, COLLECTIVES: 0})
    busy: list[tuple[str, int, int]] = field(default_factory=list)
    idle: list[tuple[str, int, int]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    launched: list[tuple[int, int]] = field(default_factory=list)
    """(begin of the launch, end of its work)."""
    links: int = 0
    host_devices: int = 1
    """That its process saw."""
    clock: int = 0
    """us by which this host's clock is ahead of the others'."""
    said: dict[str, Any] | None = None
    """Of collectives; None: their kind and size alone."""
    met: list[tuple[int, int, int]] = field(default_factory=list)
    """(begin, end, transfer) of collectives in which all ranks meet."""

    def row(self, cat: str, name: str, begin: int, end: int, **args: Any) -> None:
        """One complete event of the host's main thread."""
        event = {"ph": "X", "cat": cat, "name": name, "pid": HOST, "tid": HOST, "ts": begin, "dur": end - begin}
        self.events.append(event | {"args": args})

    def op(self, us: int, kernel: int, name: str = "aten::mm", stream: int = COMPUTE, held: int = 0) -> None:
        """An op that ends after `us` with the launch of a kernel; `held`: us that the device lets it wait."""
        begin = self.now
        self.now += us
        self.links += 1
        dims = {"Input Dims": [[512, 512], [512, 512]], "Input type": ["float", "float"]} if self.shapes else {}
        self.row("cpu_op", name, begin, self.now, **{"External id": self.links}, **dims)
        self.idle.append(("dispatch", begin, self.now))
        call = {COPIES: "cudaMemcpyAsync"}.get(stream, "cudaLaunchKernel")
        self.launch(call, self.now - CALL - 1, [kernel], stream, held)

    def launch(self, call: str, at: int, kernels: Iterable[int], stream: int, held: int = 0) -> None:
        """A call into the runtime that queues work: a kernel, a copy, a graph of several."""
        ids = {"External id": self.links, "correlation": self.links}
        self.row("cuda_runtime", call, at, at + CALL, **ids)
        for us in kernels:
            begin = max(at + CALL + LATENCY, self.free[stream]) + held
            if held:
                self.idle.append(("stalled", max(at + CALL + 20, self.free[stream]), begin))  # 20: a launch's due
            self.free[stream] = begin + us
            self.busy.append((KINDS[stream], begin, begin + us))
            self.launched.append((at, begin + us))
            self._on_device(stream, begin, us, ids)

    def _on_device(self, stream: int, begin: int, us: int, ids: dict[str, int]) -> None:
        said = {"Collective name": "allreduce", "In msg nelems": 25_000 * us, "dtype": "Float"}
        said = said if self.said is None else self.said
        cat, name, more = {
            COMPUTE: ("kernel", "ampere_sgemm_128x64_nn", {"grid": [32, 8, 1], "block": [128, 1, 1]}),
            COPIES: ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", {"bytes": 12_000 * us}),
            COLLECTIVES: ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", said),
        }[stream]  # fmt: skip
        at = self.rank or 0 if self.host_devices > 1 else 0
        args = {**ids, "device": at, "context": 1, "stream": stream, **more}
        event = {"ph": "X", "cat": cat, "name": name, "pid": DEVICE, "tid": stream, "ts": begin, "dur": us}
        self.events.append(event | {"args": args})

    def graph(self, us: int, kernels: list[int]) -> None:
        """The replay of a captured graph: one call, no ops, many kernels of the same correlation."""
        self.python(us)
        self.links += 1
        self.launch("cudaGraphLaunch", self.now - CALL - 1, kernels, COMPUTE)

    def python(self, us: int, line: str = "train.py(41): collect") -> None:
        """The host outside every op."""
        self.idle.append(("host", self.now, self.now + us))
        if self.stacks:
            self.row("python_function", line, self.now, self.now + us, **{"Python id": len(self.events)})
        self.now += us

    def wait(self, us: int) -> None:
        """For the loader's next batch."""
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self.row("user_annotation", name, self.now, self.now + us)
        self.idle.append(("data_wait", self.now, self.now + us))
        self.now += us

    def sync(self, lag: int = 5) -> None:
        """The host waits for all that is queued, and hears of it `lag` us late."""
        begin = self.now
        self.now = max(begin + CALL, max(self.free.values()) + lag)
        self.row("cuda_runtime", "cudaStreamSynchronize", begin, self.now, correlation=0)
        self.waits.append((begin, self.now))

    def collective(self, us: int) -> None:
        """After what is queued; what is queued later does not wait for it."""
        self.free[COLLECTIVES] = max(self.free[COLLECTIVES], self.free[COMPUTE])
        self.op(15, us, "c10d::allreduce_", COLLECTIVES)

    def arrival(self) -> int:
        """When a collective that is launched now would begin."""
        return max(self.now + 14 + LATENCY, self.free[COLLECTIVES], self.free[COMPUTE])

    def join(self, stream: int) -> None:
        """Products wait for another stream."""
        self.free[COMPUTE] = max(self.free[COMPUTE], self.free[stream])

    def end_of_step(self, begin: int) -> None:
        """Its mark, from `begin` to now."""
        self.row("user_annotation", f"ProfilerStep#{len(self.steps)}", begin, self.now)
        self.steps.append((begin, self.now))

    def document(self) -> dict[str, Any]:
        """As torch.profiler writes it."""
        name, major, minor, memory, sms = DEVICES[self.device]
        device = {"id": 0, "name": name, "totalGlobalMem": memory, "computeMajor": major, "computeMinor": minor,
                  "maxThreadsPerMultiprocessor": 2048, "warpSize": 32, "numSms": sms}  # fmt: skip
        head: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [device] * self.host_devices,
            "baseTimeNanoseconds": BASE,
        }
        if self.rank is not None:
            head["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": self.world}
        flags = {"record_shapes": int(self.shapes), "with_stack": int(self.stacks), "displayTimeUnit": "ms"}
        events = [{**event, "ts": event["ts"] + self.clock} for event in self.events] if self.clock else self.events
        return head | flags | {"traceEvents": events}

    def write(self, path: Path) -> Path:
        """To a file."""
        path.write_text(json.dumps(self.document()))
        return path

    def truth(self) -> dict[str, float]:
        """Share of the window by account; `work` is all that the device itself computes."""
        first, last = self.steps[0][0], max(self.steps[-1][1], max(end for _, _, end in self.busy))
        runs = {kind: np.zeros(last, bool) for kind in KINDS.values()}
        for kind, begin, end in self.busy:
            runs[kind][begin:end] = True
        works = runs["work"] | runs["copy"] | runs["communication"]
        owned = {name: np.zeros(last, bool) for name in PRIORITY}
        for name, begin, end in self.idle + [("sync", *span) for span in self._kept(works)]:
            owned[name][begin:end] = True
        left = ~works
        left[:first] = False
        shares: dict[str, float] = {}
        for name in PRIORITY[:-1]:
            shares[name] = float((left & owned[name]).sum())
            left &= ~owned[name]
        shares["host"] = float(left.sum())
        shares["communication"] = float((runs["communication"] & ~runs["work"] & ~runs["copy"])[first:].sum())
        shares["copy"] = float((runs["copy"] & ~runs["work"] & ~runs["communication"])[first:].sum())
        shares["work"] = float(works[first:].sum()) - shares["communication"] - shares["copy"]
        return {name: us / (last - first) for name, us in shares.items()}

    def waited(self) -> tuple[float, float, float, float]:
        """us in all collectives: waiting and transfer, and of each what no other work runs beside."""
        works = np.zeros(max(end for _, _, end in self.busy) + 1, bool)
        for kind, begin, end in self.busy:
            works[begin:end] |= kind != "communication"
        waits, moves = ([(b, e - t) for b, e, t in self.met], [(e - t, e) for _, e, t in self.met])
        total = [float(sum(e - b for b, e in spans)) for spans in (waits, moves)]
        bare = [float(sum((~works[b:e]).sum() for b, e in spans)) for spans in (waits, moves)]
        return total[0], total[1], bare[0], bare[1]

    def awaited(self) -> float:
        """Share of the window in which the host stands in a wait while the device works."""
        first, last = self.steps[0][0], max(self.steps[-1][1], max(end for _, _, end in self.busy))
        works, waits = np.zeros(last, bool), np.zeros(last, bool)
        for _, begin, end in self.busy:
            works[begin:end] = True
        for begin, end in self.waits:
            waits[begin:end] = True
        return float(np.mean((works & waits)[first:]))

    def _kept(self, works: np.ndarray[Any, Any]) -> Iterable[tuple[int, int]]:
        """What waits cost: from where the device stood still to its next work, never more than they kept the host."""
        for begin, end in self.waits:
            blocked = int(works[begin:end].sum())
            later = np.flatnonzero(works[end:])
            yield begin, end + min(blocked, int(later[0]) if len(later) else blocked)

    def walls(self) -> list[int]:
        """us of each step: to the end of the work that it launched, from where the one before ended."""
        ends = [max([end, *(e for at, e in self.launched if begin <= at < end)]) for begin, end in self.steps]
        ends = [max(ends[: i + 1]) for i in range(len(ends))]
        begins = [self.steps[0][0], *(max(ends[i], self.steps[i + 1][0]) for i in range(len(ends) - 1))]
        return [end - begin for begin, end in zip(begins, ends, strict=True)]


def grow(seed: int, cause: str, **how: Any) -> Grown:
    """A loop of 3 to 8 steps in which `cause` rules: half of the step and more, where nothing else has a fifth."""
    draw = random.Random(seed)
    trace = Grown(draw.random() < 0.5, draw.random() < 0.3, draw.randrange(len(DEVICES)), **how)
    big = draw.randrange(5000, 12_000)
    spread = draw.choice((0.0, 0.05, 0.3))
    for _ in range(draw.randrange(3, 9)):
        begin, longer = trace.now, 1 + draw.uniform(-spread, spread)
        trace.python(draw.randrange(5, 60))
        _plant(trace, cause, round(big * longer), draw)
        trace.sync(draw.randrange(1, 8)) if cause != "sync" else None
        trace.end_of_step(begin)
    return trace


def _plant(trace: Grown, cause: str, big: int, draw: random.Random) -> None:
    if cause == "data":
        trace.wait(big)
    if cause == "host":
        trace.python(big)
    if draw.random() < 0.3:
        trace.graph(20, [draw.randrange(20, 80) for _ in range(draw.randrange(2, 8))])
    for _ in range(draw.randrange(5, 20)):
        trace.op(draw.randrange(8, 20), draw.randrange(60, 120))
    if cause == "overhead":
        for _ in range(big // 50):
            trace.op(draw.randrange(40, 60), draw.randrange(2, 6), "aten::add_")
    if cause == "sync":
        for _ in range(big // 100):
            trace.op(12, draw.randrange(70, 90))
            trace.sync()
            trace.python(draw.randrange(50, 68))
    if cause == "communication":
        trace.collective(big)
        trace.op(12, draw.randrange(200, 800))
        trace.join(COLLECTIVES)
    if cause == "transfer":
        trace.op(14, big, "aten::copy_", COPIES)
        trace.join(COPIES)
    trace.op(12, draw.randrange(50, 150), held=big if cause == "stalled" else 0)


MEETINGS = {"allreduce": 1000, "_allgather_base": 4000, "_reduce_scatter_base": 4000, "all_to_all": 1000}
"""Elements of a call by name; the transfer of each differs, and its rate with it."""


def meet(ranks: list[Grown], transfer: int, said: dict[str, Any]) -> None:
    """A collective that ends on all of them at once, so long after the last one has come."""
    end = max(rank.arrival() for rank in ranks) + transfer
    for rank in ranks:
        begin, rank.said = rank.arrival(), said
        rank.collective(end - begin)
        rank.met.append((begin, end, transfer))


def grow_ranks(seed: int, named: bool = True, numbered: bool = True) -> list[Grown]:
    """2 to 6 ranks on clocks of their own, late by chance before each collective and one of them more often; products
    run beside some. `named`: the files say what each collective was, and `numbered`: which one."""
    draw = random.Random(seed)
    count, device = draw.randrange(2, 7), draw.randrange(len(DEVICES))
    ranks = [Grown(device=device, rank=i, world=count, clock=draw.randrange(10**6)) for i in range(count)]
    for one in ranks:
        one.now += draw.randrange(300)
    late, number = draw.randrange(count), draw.randrange(1000)
    for _ in range(draw.randrange(3, 6)):
        begins = [rank.now for rank in ranks]
        for _ in range(draw.randrange(1, 5)):
            number += 1
            _meet_once(ranks, late, draw, number if numbered else None, named)
        for rank, begin in zip(ranks, begins, strict=True):
            rank.sync(draw.randrange(1, 8))
            rank.end_of_step(begin)
    return ranks


def _meet_once(ranks: list[Grown], late: int, draw: random.Random, number: int | None, named: bool) -> None:
    name = draw.choice(list(MEETINGS)) if named else "allreduce"
    said: dict[str, Any] = {"Collective name": name, "In msg nelems": MEETINGS[name], "Out msg nelems": MEETINGS[name],
            "dtype": "Float", "Group size": len(ranks), "Process Group Name": "0",
            "Process Group Ranks": str(list(range(len(ranks))))}  # fmt: skip
    for i, rank in enumerate(ranks):
        for _ in range(draw.randrange(1, 6)):
            rank.op(draw.randrange(8, 20), draw.randrange(40, 400))
        rank.python(draw.randrange(5, 3000 if i == late else 1000))
    beside = draw.random() < 0.5
    said |= {"Seq": number} if number is not None else {}
    meet(ranks, draw.randrange(100, 2000), said if named else {})
    for rank in ranks:
        if beside:
            rank.op(draw.randrange(8, 20), draw.randrange(100, 2000))
        rank.join(COLLECTIVES)
