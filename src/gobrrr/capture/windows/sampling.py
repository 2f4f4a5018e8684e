"""The sampled window: a thread that reads the Python stack every few ms, in steps with no profiler or tracing."""

from __future__ import annotations

from typing import Any

from gobrrr.capture.facts.program_facts import flushes_denormals
from gobrrr.capture.session import window_plan
from gobrrr.capture.windows.counted import Counted
from gobrrr.capture.windows.sampler import Sampler
from gobrrr.capture.windows.window import Window, worst
from gobrrr.recording.model import event_kinds as ev

LONGEST = 2
"""Multiple of the wanted length after which the window closes, whatever its number of steps: steps that turn ten times
as long must not all end up in it."""


class SampleWindow(Window):
    """Samplers of this thread and of the loader's workers."""

    kind = ev.SAMPLE
    _sampler: Sampler | None = None

    @property
    def goal(self) -> int:
        """Steps that it wants."""
        config = self.host.config
        return window_plan.sample_steps(self.step_ns, config.budget_ns, config.sample_ns)

    def start(self) -> bool:
        """Begin to sample."""
        host = self.host
        self.limit_ns = min(self.limit_ns, LONGEST * host.config.sample_ns + 20 * self.step_ns)
        interval = window_plan.sample_interval(self.step_ns)
        self._sampler = Sampler(host.recorder.thread, interval, host.user.is_user)
        self.instruments = (self._sampler,)
        self._sampler.start()
        host.workers.switch(True, interval)
        return True

    def found(self) -> dict[str, Any]:
        """The samples. Denormals come with time (decaying states): looked for once more, later than by the counting."""
        self.off()
        assert self._sampler is not None
        later = Counted(flushes_denormals())
        self.look_at_states(later)
        return {"samples": self._sampler.as_json(), "denormals": worst(later)}

    def off(self) -> None:
        """End the samplers."""
        if self._sampler is not None:
            self._sampler.stop()
            self.host.workers.switch(False, 0.0)
