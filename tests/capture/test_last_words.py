"""How a rank ended, as it says itself and as torch tells the parent of a spawned one: class and line, no message."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.capture.session import records  # noqa: E402
from gobrrr.recording.run_folder.failure_file import endings  # noqa: E402

TOLD = f"""

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "{torch.__file__}", line 90, in _wrap
    fn(i, *args)
  File "{__file__}", line 7, in work
    raise {{error}}("secret")
{{error}}: secret
"""


def raised(folder: Path, monkeypatch: pytest.MonkeyPatch, error: str) -> Any:
    from torch.multiprocessing.spawn import ProcessRaisedException

    monkeypatch.setattr(sys, "last_value", ProcessRaisedException(TOLD.format(error=error), 1, 77), raising=False)
    records.spawned_raised(folder)
    return endings(folder)[77]


def test_what_a_spawned_rank_raised_is_read_from_what_its_parent_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ended-77.json").write_text(json.dumps({"pid": 77, "ended": 5}))
    found = raised(tmp_path, monkeypatch, "ValueError")
    assert (found.error, found.where.line, found.ended, found.peer) == ("ValueError", 7, 5, False)
    assert "secret" not in "".join(file.read_text() for file in tmp_path.iterdir())
    assert raised(tmp_path, monkeypatch, "torch.distributed.DistBackendError").peer


@pytest.mark.parametrize(
    ("error", "peer"),
    [(torch.OutOfMemoryError("out of memory"), False), (torch.linalg.LinAlgError("singular"), False),
     (RuntimeError("Connection closed by peer"), True), (RuntimeError("shape mismatch"), False),
     (ConnectionResetError("Connection reset by peer"), True), (TimeoutError("Read timed out"), False),
     (torch.distributed.DistBackendError("x"), True)],
)  # fmt: skip
def test_only_errors_of_the_connection_to_others_are_consequences(
    error: Exception, peer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    records.last_words(tmp_path)
    (found,) = endings(tmp_path).values()
    assert (found.error, found.peer) == (type(error).__name__, peer)
