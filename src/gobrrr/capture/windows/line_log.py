"""Which user line runs at which nanosecond: a trace function that follows user code by line and modules by call.

Library code costs one call event per function; lines are followed in the user's files only. The log is what turns
"some op inside train()" into "line 214".
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

from gobrrr.capture.hooks import module_parts
from gobrrr.capture.hooks.transform_guard import forget, is_the_programs, may_be_traced
from gobrrr.capture.source.user_code import UserFiles
from gobrrr.words import BACKWARD, BACKWARD_END, CALL, LINE, MODULE, MODULE_END, RETURN

_LIBRARY, _USER, _MODULE, _BACKWARD = range(4)
# A line costs some microseconds to note: a loop over the items of a batch would take most of the step. So many lines
# and calls per function and window are followed; what runs on is the sampler's.
_CLASS_NAME = type.__dict__["__name__"].__get__  # whatever a metaclass of the program's says of itself
MAX_LINES, LINES_AFTER, MAX_CALLS = 5000, 100, 5000  # proposed: some 10 ms; lines of long loops would settle it


def module_names(roots: list[Any]) -> dict[int, str]:
    """id -> qualified name of all modules below `roots`: GPT.blocks.0.attention."""
    names: dict[int, str] = {}
    for root in roots:
        for name, module in module_parts.modules(root):
            names.setdefault(id(module), f"{type(root).__name__}.{name}" if name else type(root).__name__)
    return names


class LineLog:
    """Start it at a step boundary, stop it at another, on the same thread. `events` holds (t, op, code or name, line).

    `clock` is perf_counter_ns, or another count that only grows. Where they are given, `on_module(module, args, kwargs,
    depth, frame)` is called for every module call, `on_result(result)` when one that the program made itself returns,
    `on_backward(roots)` before autograd's engine runs.
    """

    def __init__(
        self, user: UserFiles, names: dict[int, str], on_module: Callable[..., None] | None = None, *,
        on_result: Callable[[Any], None] | None = None, on_backward: Callable[[Any], None] | None = None,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:  # fmt: skip
        self.events = array("q")
        self.codes: list[tuple[str, str, int]] = []
        self.modules: list[str] = []
        self.types: list[str] = []
        self.running = False
        self._user, self._clock = user, clock
        self._on_module, self.on_result, self.on_backward = on_module, on_result, on_backward
        self._kinds: dict[int, int] = {}  # by id: hashing a code object reads all of it
        self._numbers: dict[int, int] = {}
        self._kept: list[CodeType] = []
        self._module_numbers: dict[int, int] = {}
        self._names = names
        self._depth = 0
        self._num_lines: dict[int, int] = {}
        self._num_calls: dict[int, int] = {}
        self.error = ""
        self.lost = False
        """Another tracer has taken its place meanwhile: the rest was not seen."""

    def start(self, frame: FrameType) -> bool:
        """Begin at `frame`; False where somebody else (a debugger, coverage) traces already."""
        if sys.gettrace() is not None:
            return False
        from torch.autograd import graph
        from torch.nn import Module

        self._kinds[id(Module._wrapped_call_impl.__code__)] = _MODULE
        self._kinds[id(graph._engine_run_backward.__code__)] = _BACKWARD
        self.running = True
        self._enter_frames(frame)
        sys.settrace(self._global)
        return True

    def stop(self, frame: FrameType | None, tidy: bool = True) -> None:
        """End, and leave no trace function on any frame; a tracer that the program has set meanwhile stays.

        `tidy`: also drop the frames' snapshots of their variables, which must not be done inside a trace function.
        """
        mine = sys.gettrace() == self._global
        self.lost |= self.running and not mine
        self.running = False
        if mine:
            sys.settrace(None)
        ours = (self._user_local, self._module_local, self._backward_local)
        while frame is not None:
            if frame.f_trace is not None and frame.f_trace in ours:
                frame.f_trace = None
                if tidy:
                    forget(frame)
            frame = frame.f_back

    def _fail(self, error: BaseException) -> None:
        """An exception in a trace function would reach the program: tracing ends; only one of its own goes on."""
        if type(error) is RecursionError:  # the stack is full: whatever is called here would raise once more
            self.running, self.error = False, "the stack was full"
            return
        self.error = repr(error)
        self.stop(sys._getframe(), tidy=False)
        if is_the_programs(error):
            raise error

    def _enter_frames(self, frame: FrameType | None) -> None:
        """The user's frames that run already: outermost first, each as a call and its line."""
        frames = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        for outer in reversed(frames):
            if self._kind(outer.f_code) == _USER and outer.f_trace is None:
                self.events.extend((self._clock(), CALL, self._number(outer.f_code), outer.f_lineno))
                outer.f_trace = self._user_local

    def _kind(self, code: CodeType) -> int:
        kind = self._kinds.get(id(code))
        if kind is None:
            followed = self._user.is_user(code.co_filename) and may_be_traced(code)
            kind = self._kinds[id(code)] = _USER if followed else _LIBRARY
            self._kept.append(code)
        return kind

    def _number(self, code: CodeType) -> int:
        number = self._numbers.get(id(code))
        if number is None:
            number = self._numbers[id(code)] = len(self.codes)
            name = getattr(code, "co_qualname", code.co_name)  # 3.11 and newer
            self.codes.append((code.co_filename, name, code.co_firstlineno))
        return number

    def _global(self, frame: FrameType, event: str, _arg: Any) -> Any:
        try:
            kind = self._kind(frame.f_code)
            return None if kind == _LIBRARY else self._enter(frame, kind)
        except BaseException as error:
            self._fail(error)

    def _enter(self, frame: FrameType, kind: int) -> Any:
        if not self.running:  # set again by code of the program that had saved it
            sys.settrace(None)
            return None
        if kind == _USER:
            return self._enter_user(frame)
        frame.f_trace_lines = False
        self._follow_again(frame.f_back)
        if kind == _BACKWARD:
            self.events.extend((self._clock(), BACKWARD, 0, 0))
            if self.on_backward is not None:
                self.on_backward(frame.f_locals.get(frame.f_code.co_varnames[0], ()))
            return self._backward_local
        self._enter_module(frame)
        return self._module_local

    def _enter_user(self, frame: FrameType) -> Any:
        """A function that is called all the time is left to its caller's line: following it would be the step."""
        number = self._number(frame.f_code)
        self._num_calls[number] = self._num_calls.get(number, 0) + 1
        if self._num_calls[number] > MAX_CALLS:
            return None
        self.events.extend((self._clock(), CALL, number, frame.f_lineno))
        return self._user_local

    def _line(self, frame: FrameType) -> None:
        """Note a line; code that has run through too many is followed no further, until something large is called."""
        number = self._number(frame.f_code)
        self.events.extend((self._clock(), LINE, number, frame.f_lineno))
        self._num_lines[number] = self._num_lines.get(number, 0) + 1
        if self._num_lines[number] > MAX_LINES:
            frame.f_trace_lines = False

    def _follow_again(self, frame: FrameType | None) -> None:
        """A module or a backward pass is called: the line that calls it is worth knowing, and some after it."""
        while frame is not None and self._kind(frame.f_code) != _USER:
            frame = frame.f_back
        if frame is not None and frame.f_trace is not None and not frame.f_trace_lines:
            number = self._number(frame.f_code)
            self._num_lines[number] = MAX_LINES - LINES_AFTER
            frame.f_trace_lines = True
            self.events.extend((self._clock(), LINE, number, frame.f_lineno))

    def _enter_module(self, frame: FrameType) -> None:
        given = frame.f_locals
        module = given.get("self")
        if self._on_module is not None:
            self._on_module(module, given.get("args", ()), given.get("kwargs", {}), self._depth, frame)
        self._depth += 1
        self.events.extend((self._clock(), MODULE, self._module_number(module), 0))

    def _module_number(self, module: Any) -> int:
        number = self._module_numbers.get(id(module))
        if number is None:
            number = self._module_numbers[id(module)] = len(self.modules)
            self.types.append(_CLASS_NAME(type(module)))
            self.modules.append(self._names.get(id(module)) or self.types[-1])
        return number

    def _user_local(self, frame: FrameType, event: str, _arg: Any) -> Any:
        try:
            if not self.running:
                return None
            if event == "line":
                self._line(frame)
            elif event == "return":
                self.events.extend((self._clock(), RETURN, 0, 0))
        except BaseException as error:
            self._fail(error)
        return self._user_local

    def _module_local(self, _frame: FrameType, event: str, result: Any) -> Any:
        try:
            if event == "return" and self.running:
                self._depth -= 1
                self.events.extend((self._clock(), MODULE_END, 0, 0))
                if not self._depth and self.on_result is not None:
                    self.on_result(result)
        except BaseException as error:
            self._fail(error)
        return self._module_local

    def _backward_local(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        try:
            if event == "return" and self.running:
                self.events.extend((self._clock(), BACKWARD_END, 0, 0))
        except BaseException as error:
            self._fail(error)
        return self._backward_local

    def ran(self) -> set[tuple[str, int]]:
        """(file, line) of every line of the user's that was followed."""
        rows = zip(self.events[1::4], self.events[2::4], self.events[3::4], strict=True)
        return {(self.codes[number][0], line) for op, number, line in set(rows) if op in (CALL, LINE)}

    def as_json(self) -> dict[str, Any]:
        """The log as plain data: tables of codes and module names, and the events by column."""
        columns = self.events
        named = {name: columns[at::4].tolist() for at, name in enumerate(("t", "op", "number", "line"))}
        return {"codes": self.codes, "modules": self.modules, "types": self.types, **named}
