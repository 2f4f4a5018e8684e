"""Notebooks: %load_ext gobrrr, then a cell that begins with %%gobrrr is run as it is and its report is shown below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.integrations.watch import watch

if TYPE_CHECKING:
    from gobrrr.integrations.watch import Watched


def load(shell: Any) -> None:
    """Register the magic in an IPython shell."""

    def gobrrr(line: str, cell: str) -> Watched | None:
        """%%gobrrr [FOLDER]: watch this cell, show why its steps take as long as they do."""
        with watch(line.strip() or None, show=False) as watched:
            done = shell.run_cell(cell, store_history=False)
        return watched if done.success else None

    shell.register_magic_function(gobrrr, "cell")
