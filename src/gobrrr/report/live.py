"""A tuning while it runs: one moving block of lines on a terminal, plain lines where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gobrrr.report.bars import bar
from gobrrr.report.page import Page, phrase
from gobrrr.report.tuning import STYLES, label, times, why
from gobrrr.trial.receipt import Speedup, TrialResult
from gobrrr.trial.search import Plan
from gobrrr.trial.tuning import Listener

BAR = 20
DOING = {"add": "trying", "leave-one-out": "leaving out", "final": "confirming", "identity": "against itself:"}


def listener(stream: TextIO, seconds: float) -> PlainLines:
    """What suits the stream: a live view on a terminal, plain lines elsewhere."""
    return LiveView(stream, seconds) if stream.isatty() else PlainLines(stream, seconds)


def doing(plan: Plan) -> str:
    """'trying fused_optimizer on malloc_thresholds'."""
    what = plan.remedy or " + ".join(plan.candidate)
    onto = f" on {' + '.join(plan.baseline)}" if plan.purpose == "add" and plan.baseline else ""
    return f"{DOING.get(plan.purpose, plan.purpose)} {what}{onto}"


def outcome(result: TrialResult) -> str:
    """'fused_optimizer: faster, 1.24x (1.21 to 1.27), numbers equivalent'."""
    name = "all that was kept" if result.purpose == "final" else result.remedies[-1]
    if result.purpose == "leave-one-out" and result.speedup is not None:  # the guard comes with the final trial
        return f"{name}: with it {result.verdict}, {times(result.speedup)}"
    said = why(result)
    if result.verdict == "faster" and result.guard.green and result.speedup is not None:
        said = f"{times(result.speedup)}, numbers {result.guard.verdict}"
    return f"{name}: {label(result)}, {said}"


class PlainLines(Listener):
    """A line when a trial begins and one when it has ended."""

    def __init__(self, stream: TextIO, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._seconds, self._clock = stream, seconds, clock
        self._began = clock()
        self._page = Page(ascii_only="utf" not in (getattr(stream, "encoding", None) or "utf-8").lower())

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def began(self, plan: Plan, number: int) -> None:
        self._say(f"{number}. {doing(plan)} ({self.left()})")

    def ended(self, result: TrialResult) -> None:
        self._say(f"   {outcome(result)}")

    def left(self) -> str:
        """How much of the time is left."""
        left = self._seconds - (self._clock() - self._began)
        return f"{left / 60:.1f} min left" if left > 0 else "the time is spent: confirming"

    def _say(self, text: str) -> None:
        self._stream.write(self._page.clean(text) + "\n")
        self._stream.flush()


class LiveView(PlainLines):
    """What was tried so far above, the running trial with its blocks and interval below."""

    def __init__(self, stream: TextIO, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, seconds, clock)
        self._line, self._done, self._planned, self._so_far = "starting", 0, 0, ""
        self._console = Console(file=stream, markup=False, highlight=False, emoji=False)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True, get_renderable=self._now)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def began(self, plan: Plan, number: int) -> None:
        self._line, self._done, self._planned, self._so_far = f"{number}. {doing(plan)}", 0, 0, ""

    def progress(self, done: int, planned: int, so_far: Speedup | None) -> None:
        self._done, self._planned, self._so_far = done, planned, times(so_far) if so_far else ""

    def guarding(self, stack: tuple[str, ...]) -> None:
        self._so_far = f"{self._so_far}; checking the numbers"

    def ended(self, result: TrialResult) -> None:
        shown = label(result)
        self._console.print(phrase((self._page.clean(outcome(result)), STYLES.get(shown, "red"))))

    def _now(self) -> Text:
        part = self._done / self._planned if self._planned else 0.0
        blocks = f"{self._done} of {self._planned} blocks" if self._planned else "warming up"
        drawn = f"{bar(part, BAR, ascii_only=self._page.ascii_only):<{BAR}}"
        return phrase((self._page.clean(self._line), "bold"), f"\n   {drawn} {blocks}  {self._so_far}  ",
                      (self.left(), "dim"))  # fmt: skip
