"""The counting window: inputs, denormal values, graphs that are held, and what is kept for backward."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from gobrrr.capture.facts.program_facts import flushes_denormals, orphans
from gobrrr.capture.facts.tensors import is_plain
from gobrrr.capture.source import statements
from gobrrr.capture.windows.counted import Counted
from gobrrr.capture.windows.line_log import LineLog
from gobrrr.capture.windows.saved_for_backward import Saved
from gobrrr.capture.windows.window import Window, worst
from gobrrr.recording.model import event_kinds as ev


class CountWindow(Window):
    """A line log that looks at what modules are given and give, and at the graphs that go into a backward."""

    kind = ev.COUNT
    _counted: Counted | None = None
    _saved: Saved | None = None
    _lines: LineLog | None = None

    def start(self) -> bool:
        """Begin to count."""
        import torch

        recorder, clock = self.host.recorder, torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
        self._counted = counted = Counted(flushes_denormals(), recorder.modules.number, recorder.updates_of)
        self.look_at_states(counted)
        self.host.look_for_tensors()
        self._lines = lines = LineLog(self.host.user, self.names(), counted.module, clock=clock)
        self._saved = saved = Saved(self._owned(), lines, partial(counted.denormal, "activation"))
        self.instruments = lines, counted
        lines.on_result, lines.on_backward = saved.result, saved.graph
        lines.start(sys._getframe())
        return True

    def _owned(self) -> set[int]:
        """Storages of parameters and buffers."""
        return {
            tensor.untyped_storage()._cdata for _, named in self.states() for _, tensor in named if is_plain(tensor)
        }

    def found(self) -> dict[str, Any]:
        """Everything, in the shape of recording.facts."""
        host, counted = self.host, self._counted
        assert counted is not None and self._saved is not None
        self.off()
        return self._kept() | {
            "roots": counted.roots,
            "inputs": counted.inputs[:32],
            "denormals": worst(counted),
            "switches": counted.switches,
            "orphans": orphans(host.recorder, None if self._unshown() else self._saved.reached),
            "held": host.growth(sys._getframe()),
            **self._collects(),
            "eval_span": statements.call_line(host.user.sources(), ("eval",)),
        }

    def _collects(self) -> dict[str, Any]:
        """The line that calls gc.collect(): of the user's the last that the counted steps ran; else that of a library's
        function that runs them; else any."""
        lines = statements.collect_lines(self.host.user.sources())
        ran = self._lines.ran() if lines and self._lines is not None else set()
        found = [line for line in lines if line in ran]
        library = None if found else statements.collecting_around(sys._getframe(), self.host.user.is_user)
        if found or (lines and not library):
            file, line = (found or lines)[-1]
            return {"gc_span": {"file": file, "line": line, "function": ""}}
        return {"gc_library": library}

    def _kept(self) -> dict[str, Any]:
        """Return the bytes kept for backward; nothing at all where they were not counted whole."""
        assert self._saved is not None
        table = self._saved.table()
        if reason := self._unshown():
            self.say(f"what is kept for backward was not counted: {reason}")
            return {}
        return {
            "saved": [
                {"module": m, "op": op, "span": {"file": f, "function": fn, "line": ln}, "num_bytes": b, "count": c}
                for (m, op, f, fn, ln), (b, c) in table.items()
            ]
        }

    def _unshown(self) -> str:
        """Why the graphs were not seen whole."""
        saved, lines = self._saved, self._lines
        assert saved is not None and lines is not None
        return saved.reason or lines.error or ("another tracer took over" if lines.lost else "")

    def off(self) -> None:
        """End the line log."""
        if self._lines is not None:
            self._lines.stop(sys._getframe())
