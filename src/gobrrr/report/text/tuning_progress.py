"""A tuning while it runs: one moving block of lines on a terminal, plain lines where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gobrrr.report.text.page import Page
from gobrrr.report.told import speedup_text, tuning
from gobrrr.report.told.bars import bar
from gobrrr.report.told.tuning import STYLES, label, why
from gobrrr.trial.race.candidates import Plan
from gobrrr.trial.race.race_round import Heat
from gobrrr.trial.race.tuning import Listener
from gobrrr.trial.receipt.receipt import Headspace, Speedup, TrialResult
from gobrrr.trial.statistics.objective import BETTER, TIME, Objective, adjective

BAR = 20  # columns of a progress bar; proposed: leaves room for counts; settled on 80 columns
NAMED = 2
"""Remedies of a longer combination that are named in a line."""
EVERY_S = 15.0
"""Seconds between two lines on how a race stands, on a stream where lines stay."""


def listener(stream: TextIO, seconds: float, objective: Objective = TIME) -> PlainLines:
    """Return what suits the stream: a live view on a terminal, plain lines elsewhere."""
    return LiveView(stream, seconds, objective=objective) if stream.isatty() else PlainLines(stream, seconds)


def looks(said: str, objective: Objective) -> str:
    """'looks faster', of a verdict in the race."""
    alike = f"looks equally {({'memory': 'large', 'energy': 'energy-hungry'}).get(objective.own, 'fast')}"
    return {"equivalent": alike, "inconclusive": "is open"}.get(said, f"looks {adjective(said)}")


def brief(names: Sequence[str]) -> str:
    """'trim_padding + bucketing + 5 more': the lines of what is raced and checked name them all."""
    more = len(names) - NAMED
    return " + ".join(names) if more < 2 else f"{' + '.join(names[:NAMED])} + {more} more"


def racing(heat: Heat) -> str:
    """'racing compile, fused_optimizer against the program as it is'."""
    names = (" + ".join(name for name in stack if name not in heat.reference) for stack in heat.live)
    other = f"on top of {' + '.join(heat.reference)}" if heat.reference else "against the program as it is"
    return f"racing {', '.join(names)} {other}"


def standing(heat: Heat) -> list[str]:
    """A line for each arm of a heat: how it looks so far, and whether it still runs. No figures: nobody has checked
    its numbers."""
    found = []
    for stack in heat.contenders:
        name, seen = brief([name for name in stack if name not in heat.reference]), heat.standing(stack)
        if seen.num:
            said = looks(heat.verdict(stack), heat.objective)
            found.append(f"{name} {said}{'' if stack in heat.live else ', and gets no more blocks'}")
    return found


def outcome(result: TrialResult) -> str:
    """'fused_optimizer: faster, 1.24x (1.21 to 1.27), numbers match'."""
    name = result.name if result.options else brief(result.remedies)
    if result.purpose == "final" and len(result.remedies) > 1:
        name = "all together"
    said = why(result)
    if result.speedup is None and result.guard.red:
        return f"{name}: refused, numbers {result.guard.verdict}"
    if result.purpose == "add" and result.verdict in BETTER:  # its numbers are checked in what is recommended
        return f"{name}: {result.verdict}; numerics not checked yet"
    if result.verdict in BETTER and result.guard.green and speedup_text.gain(result) is not None:
        said = f"{speedup_text.figures(result)}, numbers {speedup_text.numbers(result.guard, result.remedies)}"
    return f"{name}: {label(result)}, {said}"


class PlainLines(Listener):
    """A line when something begins, when it has ended, and now and then how a race stands."""

    def __init__(self, stream: TextIO, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._seconds, self._clock = stream, seconds, clock
        self._began = self._told = clock()
        self._page = Page(ascii_only="utf" not in (getattr(stream, "encoding", None) or "utf-8").lower())

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def heat(self, heat: Heat) -> None:
        self._begin(racing(heat))

    def standing(self, heat: Heat) -> None:
        if self._clock() - self._told >= EVERY_S:
            self._told = self._clock()
            self._say(f"   so far {'; '.join(standing(heat))} ({self.left()})")

    def began(self, plan: Plan, number: int) -> None:
        self._begin(f"confirming {brief(plan.candidate)} in fresh processes")

    def guarding(self, stack: tuple[str, ...]) -> None:
        self._begin(f"checking the numbers of {' + '.join(stack)}")

    def trying(self, what: str) -> None:
        """A whole run begins: 'trying int8_dynamic'."""
        self._begin(what)

    def ended(self, result: TrialResult) -> None:
        self._say(f"   {outcome(result)}")

    def headspace(self, found: Headspace) -> None:
        for line in tuning.headspace(found):
            self._say(f"   {line}")

    def left(self) -> str:
        """Say how much of the time is left."""
        left = self._seconds - (self._clock() - self._began)
        return f"{left / 60:.1f} min left" if left > 0 else "the time is spent"

    def _begin(self, line: str) -> None:
        self._told = self._clock()
        self._say(f"{line} ({self.left()})")

    def _say(self, text: str) -> None:
        self._stream.write(self._page.clean(text) + "\n")
        self._stream.flush()


class LiveView(PlainLines):
    """Live view: results so far above, and below them what runs now with its arms or blocks."""

    def __init__(
        self, stream: TextIO, seconds: float, clock: Callable[[], float] = time.monotonic, objective: Objective = TIME
    ) -> None:
        super().__init__(stream, seconds, clock)
        told: dict[str, Callable[[Speedup], str]] = {"memory": speedup_text.change, "energy": speedup_text.energy}
        self._told_as = told.get(objective.own, speedup_text.times)
        self._line, self._done, self._planned, self._so_far = "starting", 0, 0, [""]
        self._console = Console(file=stream, markup=False, highlight=False, emoji=False)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True, get_renderable=self._now)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def standing(self, heat: Heat) -> None:
        self._so_far = standing(heat)

    def progress(self, done: int, planned: int, so_far: Speedup | None) -> None:
        self._done, self._planned, self._so_far = done, planned, [self._told_as(so_far) if so_far else ""]

    def ended(self, result: TrialResult) -> None:
        shown = label(result) if result.purpose != "add" else speedup_text.speed(result.verdict)
        self._console.print(Text.assemble((self._page.clean(outcome(result)), STYLES.get(shown, "red"))))

    def headspace(self, found: Headspace) -> None:
        for line in tuning.headspace(found):
            self._console.print(self._page.clean(line))

    def _begin(self, line: str) -> None:
        self._line, self._done, self._planned, self._so_far = line, 0, 0, [""]

    def _now(self) -> Text:
        rows: list[str | tuple[str, str]] = [(self._page.clean(self._line), "bold"), (f"  {self.left()}", "dim")]
        if self._planned:
            drawn = self._page.clean(bar(self._done / self._planned, BAR))
            rows.append(f"\n   {drawn:<{BAR}} {self._done} of {self._planned} blocks")
        so_far = "\n   ".join(map(self._page.clean, self._so_far))
        return Text.assemble(*rows, f"\n   {so_far or 'starting'}")
