"""Work of the main thread itself in a wait for the loader, told by torch's own functions on the stack.

Drawing indices and receiving a batch from a worker are done by the main process whatever the number of workers, so
that none of them can take it over.
"""

from __future__ import annotations

SAMPLING, RECEIVING = "sampling", "receiving"
SENDING = "sending"
"""Work of a worker's threads that hand batches over, beside the one that makes them."""
_LOADER = "torch/utils/data/dataloader.py"
_POLLS = frozenset({"poll", "_poll"})


def stage_of(frames: tuple[tuple[str, str], ...]) -> str:
    """SAMPLING, RECEIVING, or "" for all else, of a stack that is in a loader. `frames`: file and function, the
    innermost first; before Python 3.11 a function's name does not tell its class."""
    first = next((i for i, (file, _) in enumerate(frames) if file.endswith(_LOADER)), len(frames))
    inside = [(file, _own(function)) for file, function in frames[:first]]
    entered = _own(frames[first][1]) if first < len(frames) else ""
    if entered == "_next_index" or (entered in ("__init__", "_reset") and inside and inside[-1][1] == "__iter__"):
        return SAMPLING  # a sampler's __iter__ that is no generator runs where the loader asks for its iterator
    if entered == "_try_get_data" and inside and _takes(inside):
        return RECEIVING
    return ""


def _takes(inside: list[tuple[str, str]]) -> bool:
    """Below the queue's get, and past waiting for something to be in it. A thread that pins
    receives for itself."""
    file, function = inside[-1]
    return file.endswith("multiprocessing/queues.py") and function == "get" and not _polls(inside)


def _polls(inside: list[tuple[str, str]]) -> bool:
    return any(function in _POLLS and file.endswith("multiprocessing/connection.py") for file, function in inside)


def _own(function: str) -> str:
    return function.rsplit(".", 1)[-1]
