"""Lightning's Trainer: Trainer(..., callbacks=[GobrrrCallback()]), of lightning or of pytorch_lightning."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobrrr.integrations.loggers import log
from gobrrr.integrations.observer import Observer

if TYPE_CHECKING:
    from gobrrr.rules.verdict.report import Report

# The two packages are the same code twice: the one that the program has imported is the one whose Trainer asks.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class GobrrrCallback(Callback):  # type: ignore[misc]
    """Watches fit() on the first process and tells the report when it ends. It changes nothing in the training.

    `folder`: where the recording goes, default .gobrrr/. `show`: the report on stderr. `log`: the verdict into the
    Trainer's own loggers (TensorBoard, MLflow, Weights & Biases, CSV).
    """

    def __init__(self, folder: str | Path | None = None, *, show: bool = True, log: bool = False) -> None:
        self._observer, self._log = Observer(folder, show), log

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Lightning's own event."""
        if trainer.is_global_zero:
            self._observer.begin()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Lightning's own event."""
        self._observer.end()
        if self._log and (report := self._observer.report):
            for logger in trainer.loggers:
                log(report, logger, trainer.global_step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Lightning's own event."""
        self._observer.end()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Lightning's own event."""
        self._observer.end()

    @property
    def report(self) -> Report | None:
        """Report on the last training; None before its end."""
        return self._observer.report
