"""Scenes of slow idioms: both forms on tensors of the recorded shapes, at the lines that are written so. Pure."""

from __future__ import annotations

import re

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.rehearsal.op_parts import chosen, side
from gobrrr.rehearsal.script import Part, Scene
from gobrrr.rules.idioms.slow_idioms import Found, at_lines, by_place
from gobrrr.rules.idioms.table import CODE, Play, idiom
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.model.views import hot


def played_as(finding: Finding) -> tuple[str, ...]:
    """Return the names under which a finding's mends are rehearsed: its remedies, or the idiom itself."""
    named = idiom(finding.name.replace("-", "_")) if finding.code == CODE else None
    return finding.remedies or ((named.name,) if named is not None and named.play else ())


def scene(name: str, ledger: Ledger, seconds: float) -> Scene | None:
    """Return the scene of an idiom; None where the ledger shows none of its forms' op."""
    named = idiom(name)
    found = at_lines(ledger, named, by_place(ledger)) if named is not None and named.play else None
    if found is None or found.idiom.play is None:
        return None
    picked, left = chosen(_parts(found, found.idiom.play, ledger))
    return Scene(name, picked, seconds, scaled_by=ledger.scaled_by, left_ns=left) if picked else None


def _parts(found: Found, play: Play, ledger: Ledger) -> list[Part]:
    """Return a part for each shape of the op; the idiom's time is divided among them by their own."""
    here = [op for op in hot(ledger) if op.where and op.where[0].place in found.lines]
    forward = (op for op in here if op.name in play.ops and op.phase != "backward")
    shows = [op for op in forward if re.search(play.shapes, str(op.shapes))]
    total = sum(op.ns for op in shows)
    trained = {op.where[0].place for op in here if op.phase == "backward"}
    return [
        Part(_side(op, play.today, trained), _side(op, play.then, trained), op.calls, found.ns * op.ns / total)
        for op in shows
    ]


def _side(op: OpGroup, form: str, trained: set[tuple[str, int]]) -> dict[str, object]:
    return {**side(op), "make": "form", "form": form, "backward": op.where[0].place in trained}
