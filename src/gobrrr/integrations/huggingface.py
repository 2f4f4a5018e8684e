"""Hugging Face's Trainer: Trainer(..., callbacks=[GobrrrCallback()]), and those that inherit from it (TRL, sentence-
transformers). Accelerate has no callbacks: put its loop under `with gobrrr.watch():`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from gobrrr.integrations.observer import Observer

if TYPE_CHECKING:
    from gobrrr.rules.verdict.report import Report


class GobrrrCallback(TrainerCallback):  # type: ignore[misc]
    """Watches train() on the first process and tells the report when it ends. It changes nothing in the training.

    `folder`: where the recording goes, default .gobrrr/. `show`: the report on stderr. The Trainer tells nobody of an
    exception: the watch then ends with the next train(), with close(), or with the process.
    """

    def __init__(self, folder: str | Path | None = None, *, show: bool = True) -> None:
        self._observer = Observer(folder, show)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The Trainer's own event."""
        if state.is_world_process_zero:
            self._observer.begin()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The Trainer's own event."""
        self._observer.end()

    def close(self) -> None:
        """End the watch of a training that failed."""
        self._observer.end()

    @property
    def report(self) -> Report | None:
        """Report on the last training; None before its end."""
        return self._observer.report
