"""How gobrrr says that something went wrong: one line, what to do about it, and an exit code."""

from __future__ import annotations

NOT_BETTER, OPEN, UNMEASURED, REFUSED = 1, 3, 5, 6
"""Exit codes of what is measured: not better; not settled in the time; nothing was measured; its numbers are not the
program's (docs/prove/exit-codes.md)."""


class GobrrrError(Exception):
    """An error for people. `message` says what and where, `hint` what to do, `exit_code` what the shell sees."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "", exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code

    def document(self) -> dict[str, str | int]:
        """Return it for programs (JSON schema gobrrr.error/1)."""
        return {"schema": "gobrrr.error/1", "error": self.message, "hint": self.hint, "exit_code": self.exit_code}

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class TraceError(GobrrrError):
    """A trace or a recording that cannot be read; names the file, the place, the limit and the flag that lifts it."""


class TorchMissing(GobrrrError):
    """torch is not installed, or too old, in the interpreter that is to run the program."""
