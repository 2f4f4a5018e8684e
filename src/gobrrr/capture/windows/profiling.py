"""The profiled window: torch's profiler, and the line that ran at each moment."""

from __future__ import annotations

import sys
from typing import Any

from gobrrr.capture.session import window_plan
from gobrrr.capture.session.recorder import vitals
from gobrrr.capture.windows.line_log import LineLog
from gobrrr.capture.windows.profiled import Profiled
from gobrrr.capture.windows.window import Window
from gobrrr.recording.model import event_kinds as ev
from gobrrr.system import processes
from gobrrr.system.descriptors import files_are_limited


class ProfileWindow(Window):
    """Profiler and line log, within a budget of memory too: the profiler keeps its events there."""

    kind = ev.PROFILE
    late_ns = 500_000_000  # torch keeps 20 kB for each op in the end
    _rss = _peak = 0
    _profiled: Profiled | None = None
    _lines: LineLog | None = None

    @property
    def goal(self) -> int:
        """Steps that it wants."""
        config = self.host.config
        return config.steps or window_plan.profile_steps(self.step_ns, config.budget_ns)

    def start(self) -> bool:
        """Profiler first, then the line log; False where the program profiles."""
        host = self.host
        if files_are_limited():
            self.say("files may not grow beyond a limit of the process: no trace is written")
            return False
        self._rss, self._peak = dict(vitals()).get(ev.RSS, 0), processes.peak_bytes() or 0
        self._profiled = Profiled(host.trace_file())
        if not self._profiled.start():
            self.say("the program runs a profiler itself: no window of ours")
            return False
        self._lines = LineLog(host.user, self.names())
        self._lines.start(sys._getframe())
        return True

    def exhausted(self, now: int) -> bool:
        """Whether time or bytes of the budget are spent."""
        grown = dict(vitals()).get(ev.RSS, 0) - self._rss
        return super().exhausted(now) or grown > self.host.config.budget_bytes

    def owns(self, profile: Any) -> bool:
        """Whether a profiler object is this window's own."""
        return self._profiled is not None and self._profiled.owns(profile)

    def found(self) -> dict[str, Any]:
        """The trace's file and the line log."""
        assert self._profiled is not None and self._lines is not None
        self._lines.stop(sys._getframe())
        written = self._profiled.stop()
        trace = self._profiled.path.name if written else None
        lines = self._lines.as_json()
        # Some GB where steps have many ops: the program has them not.
        grew = max(0, (processes.peak_bytes() or 0) - self._peak)
        return {"trace": trace, "stop_ns": self._profiled.stop_ns, "lines": lines, "peak_grew": grew}

    def off(self) -> None:
        """Line log first: it would note the profiler's end."""
        try:
            if self._lines is not None:
                self._lines.stop(sys._getframe())
        finally:
            if self._profiled is not None:
                self._profiled.abandon()

    def error(self) -> str:
        """Return the error of the line log."""
        return self._lines.error if self._lines is not None else ""
