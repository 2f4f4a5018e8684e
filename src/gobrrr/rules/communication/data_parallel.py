"""BRR706: several GPUs driven by one process."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.model.evidence import time
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.model.lines import Functions, below

COPIES = Functions(("torch.nn.parallel.",))
MADE = re.compile(r"\bDataParallel\(")


@rule("BRR706", "communication", needs={"plain"})
def data_parallel_in_one_process(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """DataParallel copies the model to all devices in every step, and one interpreter drives them in turn."""
    at = {Span(each.span.file, line) for each in ledger.statements for text, line in each.places.items()
          if MADE.search(text) and not text.startswith("class ")}  # fmt: skip
    spent = sum(below(line, (COPIES,))[0] for line in (ledger.lines or ledger.host))
    if not at or not spent:
        return
    yield Cause(
        saving=(0.0, 0.0, spent),
        message="DataParallel copies the model to each device in every step, and one process drives them all",
        advice="Use DistributedDataParallel: a process for each device (torchrun), which keeps its copy of the model.",
        where=tuple(sorted(at, key=lambda span: span.place))[:1],
        evidence={"in_data_parallel": time(spent)},
        holds=spent,
        level="note",
        confidence="inferred",
    )
