"""Which formula serves which op: a table that the families fill."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gobrrr.ledger.work.call import Call
from gobrrr.ledger.work.model import Work

Formula = Callable[[Call], Work]
FORMULAS: dict[str, Formula] = {}


def formula(names: str | Iterable[str]) -> Callable[[Formula], Formula]:
    """Serve these base names (a string is split at blanks) with the decorated formula; a name may be served once."""

    def register(function: Formula) -> Formula:
        for name in names.split() if isinstance(names, str) else names:
            if name in FORMULAS:
                raise ValueError(f"{name} has two formulas")
            FORMULAS[name] = function
        return function

    return register
