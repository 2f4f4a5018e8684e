"""One arm from outside: the user's program and all that it starts, which run only while it is its turn."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from gobrrr.capture.process.config import Config
from gobrrr.capture.process.launch import environment
from gobrrr.capture.steps import loops
from gobrrr.guard.model import observation
from gobrrr.guard.model.account import MOST_TEXT, Account, Clock
from gobrrr.guard.model.observation import Observation
from gobrrr.machine.gauges.counter import LEAST_NS, EnergyCounter
from gobrrr.machine.gauges.readings import Sample
from gobrrr.recording.model import event_kinds
from gobrrr.trial.arm import protocol, ranks
from gobrrr.trial.arm.orphans import HEIRS
from gobrrr.trial.arm.process_group import Family
from gobrrr.trial.arm.protocol import Block, RefereeSide
from gobrrr.trial.edit.program_edit import MOST_FILES, ProgramEdit
from gobrrr.trial.sandbox import limits
from gobrrr.trial.sandbox.limits import AT_HOME, Limits
from gobrrr.trial.sandbox.workspace import WORK, Workspace, as_theirs, inside
from gobrrr.trial.sandbox.writes import FIRST
from gobrrr.trial.statistics.objective import TIME, Objective

TIMED, OBSERVED = "gobrrr.trial.arm.inside:timed", "gobrrr.trial.arm.inside:Observing"
REPLAYING, WHOLE = "gobrrr.trial.arm.replaying:Replaying", "gobrrr.trial.arm.inside:whole"
"""Watchers in the arm's process: for blocks, for the guard, for blocks of batches that are replayed, for whole runs."""
START_S = 300.0
"""Seconds until the first step: imports, data, a first compilation."""
PATIENCE = 20.0
"""An arm that computes nothing is taken for hung after so many times what a block should take."""
BUSY = 0.2
"""Cores that an arm keeps busy which is compiling, say: then it has as long as for its first step."""
GRACE_S = 10.0  # seconds for a program to exit; proposed: with torch in it that takes seconds; exit times of programs
SPENT = "the time was spent"
"""Why an arm was ended that had done nothing wrong."""
UNHELD, AND = "never took hold", " and "
MOST_TEXTS = 16 << 20
"""Bytes of all text files together that are compared (proposed: logs and tables of honest programs are smaller)."""
POLL_S = 0.05  # seconds between looks whether a silent arm lives; proposed: soon noticed; CPU time of looking
BESIDE = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
"""For runs that are watched beside each other: threads that spin while they wait take each other's cores. (Four of a
transformer at once with four threads each on four cores: steps of 480 ms, spinning 9,000; one alone 260.)"""


def texts_in(folder: Path, but: Collection[str]) -> dict[str, str]:
    """The beginnings of the text files that a program made in its copy of the folder, where all else is a link."""
    found, left = dict[str, str](), MOST_TEXTS
    made = sorted(file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    for file in made[:MOST_FILES]:
        if not left:
            break
        name = file.relative_to(folder).as_posix()
        with contextlib.suppress(OSError):
            with file.open("rb") as opened:
                data = opened.read(min(MOST_TEXT, left))
            if name not in but and b"\0" not in data:
                found[name], left = data.decode(errors="replace"), left - len(data)
    return found


class ArmError(Exception):
    """An arm that can't go on: an outcome of the trial, with its reason. `over`: the program simply came to its end."""

    def __init__(self, reason: str, over: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.over = reason, over


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Raises ArmError for a message that is none of ours: the program can write to the same line."""
    try:
        yield
    except (msgspec.ValidationError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ArmError("the program wrote a message of its own where gobrrr's are read") from error


def require_hold(names: Iterable[str], applied: Mapping[str, str], declined: Mapping[str, str], where: str) -> None:
    """Raises ArmError for remedies that have not taken hold, with the reason that the first of them gave."""
    missing = [name for name in names if name not in applied]
    if missing:
        why = f": {declined[missing[0]]}" if missing[0] in declined else ""
        raise ArmError(f"{AND.join(missing)} {UNHELD} {where}{why}")


def cost_of(block: Block, objective: Objective) -> float:
    """Return what a block cost. Raises ArmError where that was not measured."""
    if objective.own == "energy" and not block.joules:
        raise ArmError(f"no energy of a block of {block.ns / 1e9:.1f} s: a counter stood still, or a device has none")
    return objective.cost(block)


def unheld(reason: str) -> list[str]:
    """Remedies for want of which an arm could not go on, as they did not take hold."""
    names, found, _ = reason.partition(f" {UNHELD} ")
    return names.split(AND) if found else []


class Arm:
    """Start it, run blocks, end it. Between blocks its whole family is stopped, so that no worker runs ahead."""

    def __init__(
        self, command: Sequence[str], folder: Path, remedies: Sequence[str] = (), *,
        source: Path | None = None, env: Mapping[str, str] | None = None, within: Limits = AT_HOME, loop: str = "",
        objective: Objective = TIME, timed: str = TIMED, edit: ProgramEdit | None = None,
        account: int = 0, counter: EnergyCounter | None = None,
    ) -> None:  # fmt: skip
        """`source`: the user's working directory, of which the arm gets its own copy; default the present one. `loop`:
        the one that the diagnosis found to take the time; else the first one that makes a step. `objective`: what is
        measured of its blocks beside their time. `timed`: who watches where those are made. `edit`: put on its copy
        of the folder. `account`: it keeps one of what it does (2: for gates). `counter`: of its blocks' energy."""
        self._loop, self._side, self._objective = loop, RefereeSide(), objective
        self._timed, self._edit, self._counter = timed, edit, counter
        self.account, self._counts = Account() if account else None, int(account)
        self._limits = within
        self._scratch: Path | None = None
        self._command, self._folder, self._source = list(command), folder, (source or Path.cwd()).resolve()
        self._work = self._folder / WORK
        self.remedies, self._env = tuple(remedies), dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._family: Family | None = None
        self._ask: protocol.Line | None = None
        self._told: protocol.Line | None = None
        self._killed = ""
        self.applied: dict[str, str] = {}
        """Remedies that said they took hold, with what they said."""
        self.declined: dict[str, str] = {}
        """Remedies that left something as it was, with the last reason."""
        self.places: dict[str, dict[str, bool]] = {}
        """Lines of the user's that led to either ("train.py:12"), and whether a remedy took all that it met there."""
        self.start_seconds = 0.0
        self.peak_bytes = 0
        self.others: list[Observation] = []
        """What the guard saw on the other ranks, in order."""

    def start(self, seconds: float = START_S) -> None:
        """Run it until its first step has ended; then it stands still. Raises ArmError."""
        self._launch(self._timed)
        self.start_seconds = float(self._expect("ready", seconds).get("seconds", 0.0))
        self.pause()

    def observe(self, steps: int, *, seed: int = 0, states: Path | None = None, keeps: bool = False,
                parts: str | None = None, seconds: float = START_S, **how: int) -> Observation:  # fmt: skip
        """Instead of start and run: let the guard watch the first steps, and give what it saw. Raises ArmError.

        `states`: the baseline's, from which it begins its steps; one that `keeps` them does so in its own folder.
        `parts`, and `how` (float64, without_dropout, late): as in capture.process.config."""
        folder = self._folder / protocol.STATES if keeps else states
        self._launch(
            OBSERVED, observe=steps, seed=seed, keeps=int(keeps),
            states=str(folder.resolve()) if folder is not None else None, parts=parts,
            **{name: int(value) for name, value in how.items()},
        )  # fmt: skip
        self._expect("ended", seconds)
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):  # other ranks may be longer in their last step
            if self._process.wait(seconds if ranks.launcher(self._command) else GRACE_S):
                raise self._gone()
        require_hold(self.remedies, self.applied, self.declined, "in this program")
        found = observation.read(self._folder / protocol.OBSERVED)
        others = [self._folder / f"{protocol.OBSERVED}.rank{rank}" for rank in range(1, found.ranks)]
        if missing := [file.suffix.removeprefix(".rank") for file in others if not file.exists()]:
            raise ArmError(f"rank {missing[0]} left no record")
        self.others = list(map(observation.read, others))
        return found

    def rank_accounts(self) -> list[Account]:
        """Return what the other ranks did so far, each by its own count."""
        if self.account is None:
            return []
        with _readable():
            found = ranks.accounts(self._folder)
        for each in found if self.account.ended is None else ():
            each.ended = None  # it failed, since rank 0 was told to end
        return found

    def _launch(self, watcher: str, **watched: Any) -> None:
        """Start it in a folder of its own, its group its own, its output into files: what it prints only for the guard,
        which reads it."""
        self._folder.mkdir(parents=True)
        self._work = work = Workspace(self._source, self._folder / WORK).make()
        if self._edit is not None:
            self._edit.put_on(work)
        command = [inside(word, self._source, work) for word in ranks.without_ports(self._command)]
        waiting = BESIDE if watcher == OBSERVED else {}
        config = Config(
            str(self._folder.resolve()), watcher=watcher, first=FIRST, remedies=",".join(self.remedies) or None,
            source=str(self._source), referee=os.getpid(), loop=self._loop or None,
            objective=self._objective.name, account=self._counts, **watched,
        )  # fmt: skip
        protocol.make(self._folder)
        self._ask = protocol.Line(self._folder / protocol.ASK)
        self._told = protocol.Line(self._folder / protocol.TOLD)
        usual = waiting | ranks.port_of_its_own(command) | environment(config)
        start = limits.start(command, usual, self._folder, self._source, self._limits, self._env)
        self._scratch = start.scratch
        printed = self._folder / protocol.STDOUT if watcher in (OBSERVED, WHOLE) else Path(os.devnull)
        with printed.open("wb") as out, (self._folder / limits.STDERR).open("ab") as err:
            self._process = subprocess.Popen(
                start.command, env=start.env, cwd=work, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
        self._family = Family(self._process.pid)
        HEIRS.know(self._family.known())
        if self._killed:  # while it was being made
            self.kill(self._killed)

    def run(self, steps: int, expected_ns: float | None = None) -> Block:
        """Let it make so many steps, then stop it; it warms up where nobody expects how long they take. Raises ArmError
        where it dies, ends or hangs. Where energy is counted, more steps follow until that is told of them."""
        if self._counter is None or expected_ns is None:
            return self._granted(steps, expected_ns)[0]
        before = self._counter.look({each.pid for each in self._members()})  # the others stand still until the end
        found, until = self._granted(steps, expected_ns)
        while found.referee_ns < LEAST_NS:  # faster than they were: dropping what is short would favour slow steps
            lacking = LEAST_NS / max(1, found.referee_ns) - 1
            more, until = self._granted(math.ceil(lacking * len(found.walls)) + 1, expected_ns)
            with _readable():
                found = found.joined(more)
        joules = self._counter.joules(before, until) if until is not None else None
        with _readable():
            part = min(1.0, max(0, found.whole_ns or 0) / found.referee_ns)  # the rest is gobrrr's own counting
        return found._replace(joules=joules * part if joules is not None else None)

    def _granted(self, steps: int, expected_ns: float | None) -> tuple[Block, Sample | None]:
        """One grant, and the counters at its end."""
        assert self._ask is not None
        self.resume()
        granted = time.monotonic_ns()
        self._ask.send(**self._side.grant(steps), warm=expected_ns is not None)
        seconds = START_S if expected_ns is None else max(10.0, PATIENCE * expected_ns / 1e9)
        message = self._expect("block", seconds)
        referee_ns = time.monotonic_ns() - granted
        until = self._counter.look() if self._counter is not None else None
        self.pause()
        graphs = message.get("graphs")
        with _readable():
            block = Block(
                int(message["ns"]), tuple(int(wall) for wall in message["walls"]), tuple(graphs) if graphs else None,
                message.get("peak_bytes"), message.get("samples"), message.get("whole_ns"), referee_ns,
                int(message.get("rows") or 0),
            )  # fmt: skip
            whole, own = (int(message.get(name, 0)) for name in ("whole_ns", "own_ns"))
        if self.account is not None and expected_ns is not None:
            self.account.clocks.append(Clock(len(block.walls), block.ns, whole, referee_ns, own))
        return block, until

    def pause(self) -> None:
        """Stop every process of its family."""
        self.peak_bytes = max(self.peak_bytes, self.resident())
        if self._family is not None and self._process is not None:  # before they stand still
            HEIRS.know(self._family.known())
        self._signal(signal.SIGSTOP)
        limits.shorten(self._folder)

    def resume(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def wanting(self) -> int:
        """Threads of the family that run or want a core."""
        return self._family.wanting() if self._family is not None and self._process is not None else 0

    def end(self) -> None:
        """End it as its own sys.exit() would; kill what is left of the family. Safe at any moment, and twice."""
        self._killed = self._killed or "it was ended"
        process = self._process
        if process is None:
            return
        if self._side.waits:  # in the middle of its steps it hears nothing
            self.kill(self._killed)
        with contextlib.suppress(OSError):
            self.resume()
            if not self._side.waits and process.poll() is None and self._ask is not None:
                self._ask.send("end")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE_S)
        self._signal(signal.SIGKILL)
        HEIRS.forget(process.pid)  # while its number is its own
        process.wait()
        self._process = None
        if self.account is not None:
            self.account.files = texts_in(self._work, self._edit.files if self._edit is not None else ())
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        for line in (self._ask, self._told):
            if line is not None:
                line.close()

    def kill(self, why: str = SPENT) -> None:
        """End it at once, from any thread, started or not: who waits for it hears why. `end` is still to be called."""
        self._killed = why
        self._members()  # what it has started since it was last looked at
        self._signal(signal.SIGKILL)

    def alive(self) -> bool:
        """Whether its program still runs, or stands still."""
        return self._process is not None and self._process.poll() is None

    def resident(self) -> int:
        """Bytes that the family holds now."""
        return int(self._total(lambda each: each.memory_info().rss))

    def held(self) -> int:
        """The same, pages that its processes share counted once: forked workers share most of what they hold."""
        return int(self._total(lambda each: getattr(found := each.memory_full_info(), "pss", found.uss)))

    def _cpu_s(self) -> float:
        """Seconds of CPU time that its processes have used, those that ended among them."""
        return self._total(lambda each: sum(each.cpu_times()[:4]))

    def _total(self, of: Callable[[psutil.Process], float]) -> float:
        total = 0.0
        for each in self._members():
            with contextlib.suppress(psutil.Error, AttributeError):
                total += of(each)
        return total

    def _members(self) -> list[psutil.Process]:
        return self._family.members() if self._family is not None and self._process is not None else []

    def _signal(self, number: int) -> None:
        if self._family is not None and self._process is not None:
            self._family.signal(number)

    def _expect(self, kind: str, seconds: float) -> protocol.Message:
        """The next message of a kind. Raises ArmError where the process ends, fails or stays silent before it."""
        assert self._told is not None and self._process is not None
        process, began = self._process, time.monotonic()
        looked: tuple[float, float] | None = None  # in blocks far too long alone: it goes through all processes
        while True:
            alive = process.poll() is None
            message = self._told.receive(POLL_S if alive else 0)
            if message is not None:
                with _readable():
                    if message["kind"] == "once":  # it makes what it will not again: its steps begin that much later
                        began, looked = began + float(message["ns"]) / 1e9, None
                    elif self._heard(message, kind):
                        return message
                continue
            if not alive:
                raise self._gone()
            waited = time.monotonic() - began
            if looked is None and waited > seconds / 2:
                looked = waited, self._cpu_s()
                if self._ask is not None and self._side.waits:  # its last message may be lost: neither waits for ever
                    self._ask.send("say")
            if looked and waited > seconds:
                idle = self._cpu_s() - looked[1] < BUSY * (waited - looked[0])
                if idle or waited > START_S:
                    raise ArmError(self._silent(waited, idle))

    def _heard(self, message: protocol.Message, kind: str) -> bool:
        """Whether a message is the one that is waited for. Raises ArmError."""
        if self.account is not None and "account" in message:
            self.account.add(msgspec.convert(message["account"], Account))
        if message["kind"] == "ended":
            self._members()  # once it is gone nothing leads to what it has started
        if self._side.told(message) or (message["kind"] == kind == "ended"):
            return True
        if message["kind"] in ("applied", "declined") and (line := message.get("line")):
            # The line by the user's file, not the arm's copy of it.
            file = as_theirs(str(line["file"]), self._source, self._folder / WORK)
            place = f"{file.removeprefix(f'{self._source}/')}:{line['line']}"
            known = self.places.setdefault(str(message["remedy"]), {})
            known[place] = known.get(place, True) and message["kind"] == "applied"
        if message["kind"] == "applied":
            self.applied[str(message["remedy"])] = str(message["detail"])
        elif message["kind"] == "declined":
            self.declined[str(message["remedy"])] = str(message["detail"])
        elif message["kind"] == "failed":
            raise ArmError(str(message["error"]))
        elif message["kind"] == "ended":
            raise self._gone()
        return False

    def _silent(self, seconds: float, idle: bool) -> str:
        """Say what is known of an arm that makes no step and does not wait for us."""
        loop = loops.read(self._loop)
        which = f" of {event_kinds.loop_name(loop[0])}" if loop and loop[0] in event_kinds.LOOPS else ""
        said = f"no step{which} for {seconds:.0f} s"
        if self._side.aside is not None:
            kind, steps = self._side.aside
            return f"{said}; meanwhile {steps} of another loop, of {event_kinds.loop_name(kind)}: an evaluation?"
        if idle:
            return f"{said}, and its processes compute nothing: it waits for something that is not there, or hangs"
        return f"{said}, though it computes: longer than a trial waits"

    def _gone(self) -> ArmError:
        """Why the program is no longer there. Another thread may have ended it."""
        if self._killed or self._process is None:
            return ArmError(self._killed)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        code = self._process.poll()
        if not code:
            return ArmError("the program came to its end", over=True)
        if code == -signal.SIGKILL:
            return ArmError("it was killed (SIGKILL): by the system without memory left, or by somebody")
        last = f": {said}" if (said := limits.last_words(self._folder)) else ""
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        refused = limits.refusal(self._folder)
        return ArmError(
            f"it ended with {how}{last}; {refused}: {limits.HINT}" if refused else f"it ended with {how}{last}"
        )
