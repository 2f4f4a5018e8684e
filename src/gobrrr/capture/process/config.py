"""Settings that the launcher gives the watched process, in one environment variable that the process takes back out."""

import os

VARIABLE = "GOBRRR_CAPTURE"
_BETWEEN = "\x1f"
SESSION = "gobrrr.capture.session.session:Session"
"""Watcher where nothing else is named."""


class Config:
    """Where to write, and how much may be spent. `budget_ns` bounds the windows' time, `budget_bytes` their memory.

    `plain_ns` is the least time of plain steps before the first closer look, `sample_ns` about how long samples are
    taken; `leave`: end the program when enough was seen, or so many seconds later where a second epoch is
    near. `remedies`: names to apply, between commas. `source`: the
    user's working directory, of which this process has a copy and into which it must not write. `watcher` names who
    watches ("module:class", a bootstrap.Watcher), `first` what is called with this before the program's first line:
    rooms above this one, which it does not know. The guard watches for `observe` steps, from seeds moved by `seed`, in
    float64 or not, `without_dropout` or with it; then it looks away until step `late`, and at some more; `parts` (JSON)
    names the baseline's parameters that an edited program's hold. `loop`: whose steps a trial is of, in a word that
    capture.steps.loops.read() reads. `objective`: what else a trial measures, memory say;
    `account`: the process that is timed counts what it does; 2: samples once, whichever parts of a model are called.
    `measures` (JSON): what gates measure in it, (name, measure) each. `spawned`: multiprocessing has started it.
    `from_step`: looks wait until the main loop has made so many steps; `on_signal`: for this signal, by its number.
    `stop_after` counts from the first such look.
    `states`: folder of the baseline's states, which this process keeps (`keeps`) or begins its steps from. `referee`:
    process id of who started an arm.
    """

    def __init__(
        self, folder: str, *, steps: int = 0, stop_after: int = 0, budget_ns: int = 60_000_000_000,
        budget_bytes: int = 1 << 29, pythonpath: str | None = None, plain_ns: int = 500_000_000,
        sample_ns: int = 1_500_000_000, leave: int = 0, watcher: str = SESSION, first: str | None = None,
        remedies: str | None = None, source: str | None = None, observe: int = 0, seed: int = 0, float64: int = 0,
        without_dropout: int = 0, states: str | None = None, keeps: int = 0, referee: int = 0,
        loop: str | None = None, objective: str | None = None, late: int = 0, parts: str | None = None,
        account: int = 0, spawned: int = 0, from_step: int = 0, on_signal: int = 0, measures: str | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.steps, self.stop_after = folder, steps, stop_after
        self.budget_ns, self.budget_bytes = budget_ns, budget_bytes
        self.plain_ns, self.sample_ns, self.leave = plain_ns, sample_ns, leave
        self.pythonpath, self.remedies, self.source = pythonpath, remedies, source
        self.watcher, self.first = watcher, first
        self.observe, self.seed, self.float64, self.without_dropout = observe, seed, float64, without_dropout
        self.states, self.keeps, self.referee, self.loop = states, keeps, referee, loop
        self.objective, self.late, self.parts = objective, late, parts
        self.account, self.spawned = account, spawned
        self.from_step, self.on_signal, self.measures = from_step, on_signal, measures

    def to_env(self) -> str:
        """name=value, in a form that is read back without importing anything: the program's start is its own."""
        return _BETWEEN.join(f"{name}={value}" for name, value in vars(self).items() if value is not None)

    def names(self) -> list[str]:
        """The remedies to apply."""
        return [name for name in (self.remedies or "").split(",") if name]

    @classmethod
    def from_env(cls, text: str | None = None) -> "Config | None":
        """Read it back; None where this process is not watched."""
        text = os.environ.get(VARIABLE) if text is None else text
        if not text:
            return None
        fields = dict(part.split("=", 1) for part in text.split(_BETWEEN))
        texts = ("pythonpath", "watcher", "first", "remedies", "source", "states", "loop", "objective", "parts",
                 "measures")  # fmt: skip
        words = {name: fields.pop(name) for name in texts if name in fields}
        numbers = {name: int(value) for name, value in fields.items() if name != "folder"}
        return cls(fields["folder"], **words, **numbers)  # type: ignore[arg-type]


def said_in(name: str) -> int | None:
    """Return a whole number that an environment variable holds; None where it holds none."""
    said = os.environ.get(name, "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None
