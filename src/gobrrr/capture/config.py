"""What the launcher tells the watched process, carried in one environment variable that the process takes back out."""

from __future__ import annotations

import os

VARIABLE = "GOBRRR_CAPTURE"
_BETWEEN = "\x1f"


class Config:
    """Where to write, and how much may be spent. `budget_ns` bounds the windows' time, `budget_bytes` their memory.

    `plain_ns` is the least time of plain steps before the first closer look, `sample_ns` about how long
    samples are taken.
    """

    def __init__(
        self, folder: str, *, steps: int = 0, stop_after: int = 0, budget_ns: int = 60_000_000_000,
        budget_bytes: int = 1 << 29, pythonpath: str | None = None, plain_ns: int = 500_000_000,
        sample_ns: int = 1_500_000_000,
    ) -> None:  # fmt: skip
        self.folder, self.steps, self.stop_after = folder, steps, stop_after
        self.budget_ns, self.budget_bytes = budget_ns, budget_bytes
        self.pythonpath = pythonpath
        self.plain_ns, self.sample_ns = plain_ns, sample_ns

    def to_env(self) -> str:
        """name=value, in a form that is read back without importing anything: the program's start is its own."""
        return _BETWEEN.join(f"{name}={value}" for name, value in vars(self).items() if value is not None)

    @classmethod
    def from_env(cls, text: str | None = None) -> Config | None:
        """Read it back; None where this process is not watched."""
        text = os.environ.get(VARIABLE) if text is None else text
        if not text:
            return None
        fields = dict(part.split("=", 1) for part in text.split(_BETWEEN))
        folder, pythonpath = fields.pop("folder"), fields.pop("pythonpath", None)
        return cls(folder, pythonpath=pythonpath, **{name: int(value) for name, value in fields.items()})
