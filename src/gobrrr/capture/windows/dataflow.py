"""The dataflow window: which op reads which tensor, and which tensors nobody writes, for work that never changes.

torch's execution trace observer writes ops with the identities of their tensors, without a profiler and without code in
Python. It takes some 10 us per op, so that it has steps of its own. Its identities are addresses, and an array of NumPy
can be written without torch's knowledge: what counts as unchanged is asked of the tensors themselves, before and after.
"""

from __future__ import annotations

import contextlib
import gc
import linecache
import mmap
import os
import re
import weakref
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from gobrrr.capture.facts.tensors import is_plain, some_bytes, version
from gobrrr.capture.windows.profiling import is_capturing, without_chatter
from gobrrr.capture.windows.window import Window
from gobrrr.recording.model import event_kinds as ev
from gobrrr.system.descriptors import files_are_limited

MAX_BYTES = 32 << 20  # of the file, 1 kB an op; proposed: read in two seconds; larger programs would settle it
MAX_TENSORS = 4096  # tensors that are looked at before and after; proposed: 20 us each
MAX_SAMPLED = 1024  # elements read of each; proposed: a change of fewer elements goes unseen

COMPRESSED = re.compile(rb"[_:.](?:sparse_)?(?:cs[rc]|bs[rc])|sparse_compressed|c(?:row|col)_indices")
"""Names of compressed sparse layouts, and of what makes or reads them, in sources and among ops."""


class _Look(NamedTuple):
    """A tensor as it was when the window opened."""

    tensor: weakref.ref[Any]
    address: int
    version: int
    sample: bytes

    def unchanged(self) -> Any:
        """Return the tensor; None where it is gone or another than it was."""
        tensor = self.tensor()
        now = _look(tensor) if tensor is not None else None
        return tensor if now is not None and now[1:] == self[1:] else None


class FlowWindow(Window):
    """torch's execution trace observer during three steps, and the tensors that stay what they are meanwhile."""

    kind = ev.FLOW
    _path: Path | None = None
    _is_off = False
    _looks: tuple[_Look, ...] = ()

    def start(self) -> bool:
        """Look at the tensors, and begin; False where the program observes its ops itself."""
        import torch
        from torch._C._autograd import _profiler_enabled
        from torch._C._profiler import _add_execution_trace_observer, _enable_execution_trace_observer

        if self.goal < 2 or files_are_limited() or _profiler_enabled():  # one step has nothing to be held against
            return False
        path = self.host.trace_file().with_suffix(".flow.json")
        held = [each for each in gc.get_objects() if type(each) in (torch.Tensor, torch.nn.Parameter)]
        if self._may_be_compressed(path, held):
            return False
        with without_chatter():
            if not _add_execution_trace_observer(str(path)):
                return False
        self._path = path
        self._looks = tuple(filter(None, map(_look, islice(filter(is_plain, held), MAX_TENSORS))))
        with without_chatter():
            _enable_execution_trace_observer()
        return True

    def step_over(self) -> None:
        """A step of its loop has ended: mark it among the ops."""
        from torch._C import _autograd

        super().step_over()
        # Not record_function: it calls an op, which a mode of the program's would see.
        _autograd._record_function_with_args_exit(_autograd._record_function_with_args_enter(ev.STEP_MARK))

    def exhausted(self, now: int) -> bool:
        """Whether time, or room in the file, is spent."""
        return self._is_too_large() or super().exhausted(now)

    def _is_too_large(self) -> bool:
        return self._path is not None and self._path.exists() and self._path.stat().st_size > MAX_BYTES

    def found(self) -> dict[str, Any]:
        """The file, and shapes, strides and sizes of the tensors that nobody wrote."""
        self.off()
        assert self._path is not None
        if self._is_too_large() or is_capturing():  # a look at a tensor would end the capture of a CUDA graph
            self._path.unlink()
            return {}
        same = [tensor for look in self._looks if (tensor := look.unchanged()) is not None]
        own = {id(tensor) for _, named in self.states() for _, tensor in named}
        kinds, of_models = {*map(_kind, same)}, {_kind(tensor) for tensor in same if id(tensor) in own}
        return {"trace": self._path.name, "unchanged": sorted(kinds), "own": sorted(of_models)}

    def off(self) -> None:
        """Take the observer off."""
        if self._path is not None and not self._is_off:
            if os.getpid() != self.host.recorder.pid:
                self._let_go(self._path)
            from torch._C._profiler import _disable_execution_trace_observer, _remove_execution_trace_observer

            self._is_off = True
            with without_chatter():
                _disable_execution_trace_observer()
                _remove_execution_trace_observer()
            self._path.chmod(0o600)

    def _let_go(self, path: Path) -> None:
        """In a forked child: what its copy of the observer has not yet written goes nowhere, not into the file."""
        for each in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if each.samefile(path):
                    with Path(os.devnull).open("wb") as nowhere:
                        os.dup2(nowhere.fileno(), int(each.name))

    def _may_be_compressed(self, path: Path, held: list[Any]) -> bool:
        """Whether the program may make tensors of a compressed sparse layout: torch's observer asks for their storage,
        which they have not, and the process dies (torch 2.13). By what is alive, the profiled ops, and the sources."""
        if any(COMPRESSED.search(f"_{tensor.layout}".encode()) for tensor in held):
            return True
        profiles = list(path.parent.glob(f"{path.name.partition('.')[0]}.window*.trace.json"))
        profiles.sort(key=lambda file: file.stat().st_mtime_ns)
        files = [*profiles[-1:], *map(Path, self.host.user.sources())]
        return not profiles or any(_mentions(file) for file in files)


def _mentions(file: Path) -> bool:
    """Whether a file, a cell of a notebook or what python -c was given names a compressed layout."""
    typed = linecache.cache.get(str(file), ())[2:3]
    try:
        if typed or file.name == "<string>":
            found = "".join(typed[0]).encode() if typed else Path("/proc/self/cmdline").read_bytes()
            return COMPRESSED.search(found) is not None
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return COMPRESSED.search(text) is not None
    except ValueError:  # empty
        return False
    except OSError:
        return True


def _kind(tensor: Any) -> str:
    """Return shape, strides and bytes of an element, as the observer writes them."""
    return f"{list(tensor.shape)} {list(tensor.stride())} {tensor.element_size()}"


def _look(tensor: Any) -> _Look | None:
    """Note a tensor's address, version and some of its elements; None of one that cannot be read."""
    try:
        sample = some_bytes(tensor, MAX_SAMPLED)
        return _Look(weakref.ref(tensor), tensor.data_ptr(), version(tensor), sample)
    except (RuntimeError, TypeError):
        return None
