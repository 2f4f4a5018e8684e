"""Fixtures of the tests that watch a training in their own process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gobrrr.capture.session import recorder, window_plan
from tests.transparency.training import train


@pytest.fixture(scope="package")
def plain() -> Iterator[dict[str, Any]]:
    """The results of a run that nobody watches; the second one, for imports and caches are then as they stay."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the nets are tiny, and the machine may be busy
    train()
    yield train()
    torch.set_num_threads(threads)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows open after four steps, and events are written at once, whatever the clock says."""
    monkeypatch.setattr(window_plan, "is_steady", lambda walls, min_time=0: len(walls) >= 4)
    monkeypatch.setattr(recorder, "VITALS_NS", 0)
    monkeypatch.setattr(recorder, "FLUSH_NS", 0)
