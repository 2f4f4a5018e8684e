"""The kinds of event in a journal: each is four int64 (t_ns, kind, id, value), t on the watched process's steady clock.

Standard library only: the watched process writes them.
"""

from __future__ import annotations

from typing import NamedTuple

DATA_BEGIN = 1  # id: loader
DATA_END = 2  # id: loader; value: 0 a batch came, 1 none did (the epoch was over, or an error)
UPDATE_BEGIN = 3  # id: optimizer
UPDATE_END = 4  # value: number of the set of shapes that it updates
FORWARD = 5  # id: module the program calls itself; value: training | grad_enabled << 1
ITER = 6  # id: loader, not known yet (-1): a loader's iterator is being made; value: 1 where hooks rest on
STEP = 7  # an explicit boundary of gobrrr.steps()
WINDOW_BEGIN = 8  # value: PROFILE, SAMPLE, COUNT or FLOW; id: loop
WINDOW_END = 9  # value and id as at its begin
RSS = 10  # value: bytes
FAULTS = 11  # value: minor page faults of this process so far
GC = 12  # value: ns of one collection; id: 1 where gc.collect() was called, 0 where it came by itself
BACKWARD = 13  # id: not known (-1); value: 1 where it leads to no weight; the program starts a backward pass
CPU = 14  # value: CPU ns of this process so far, without its children
BUSY = 15  # value: busy jiffies of the CPUs that the process may use, in ns
BOUNDARY = 16  # a step of the loop `id` ends here; value: its kind, as in LOOPS
REST_BEGIN = 17  # the hooks rest: of the loop `id`, of kind `value`, boundaries alone follow
REST_END = 18  # value: steps of the rest
SPENT = 19  # value: CPU ns of the watched thread so far; id: at which moment
WAITED = 20  # value: ns that the process's threads were ready to run and had no core, so far, all threads together
STOLEN = 21  # value: jiffies of those CPUs that the host took for others, in ns
DEVICE = 22  # value: bytes that torch's allocator has handed out on the devices in use
OWN = 23  # value: resident bytes that are no file's: a mapped file's pages go whenever others need the room
THREAD = 24  # value: CPU ns of the watched thread so far; follows each mark of a phase where there are several ranks
COLLECTIVE = 25  # a collective is called by the program's own thread, not by the backward pass
ASIDE = 26  # id: loop; between two steps facts were noted; value: 1 where a look that was asked for begins here

GENERATE = 27  # the program calls transformers' generate()
TOKENS = 28  # id: rows of its sequences, value: their length; before the first token, and behind each


class LoopKind(NamedTuple):
    """Kind of a loop: the event that ends its steps, and their purpose."""

    name: str
    purpose: str
    facts: str = ""
    """Table of the facts that holds what the loop's number is of."""
    trains: bool = True
    """Its steps train, are what the program says, or hold what nobody sees (graphs)."""


UPDATES, FORWARDS, EXPLICIT, BATCHES, BACKWARDS, REPLAYS = range(1, 7)
LOOPS = {
    UPDATES: LoopKind("updates", "training", "optimizers"),
    FORWARDS: LoopKind("forwards", "inference", "modules", trains=False),
    EXPLICIT: LoopKind("steps()", "loop"),
    BATCHES: LoopKind("batches", "loop", "loaders", trains=False),
    BACKWARDS: LoopKind("backward passes", "training", "modules"),
    REPLAYS: LoopKind("graph replays", "replayed"),
}
TRAINS = tuple(kind for kind, loop in LOOPS.items() if loop.trains)


def loop_name(kind: int) -> str:
    """Return what ends the steps of a loop of this kind; "steps" of one that is not known."""
    return LOOPS[kind].name if kind in LOOPS else "steps"


UNKNOWN, RUNS, WRITES, WAITS = -1, 0, 1, 2
"""States of a sampled thread: it runs or wants a core; a call of the system that writes holds it; any other call does
(a timer, a lock, a pipe, a socket, another process). One that wants its turn at Python is never seen held: the sampler
has let go of it by then."""
PROFILE, SAMPLE, COUNT, FLOW = 1, 2, 3, 4
WINDOW_NAMES = {PROFILE: "profile", SAMPLE: "sample", COUNT: "count", FLOW: "flow"}
STEP_MARK = "gobrrr.step"
"""Name of the event between two steps of the dataflow window."""
NO_WINDOW = "no profiled window"
"""How the reason begins why there is none."""
WAKING, HOOKED, LEAVING, RESTING, RESTED = 1, 2, 3, 4, 5
"""Moments of a stretch and the rest behind it: before the hooks come back; when that is no longer felt; before they go;
when that is no longer felt; as many steps later as the stretch had."""
