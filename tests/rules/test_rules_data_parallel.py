"""BRR706: DataParallel, by its line and the time in torch's own copying."""

from __future__ import annotations

import pytest

from gobrrr.ledger.model.ledger import LineGroup, Statement
from tests.support.handmade import LINE, MS, Case

WRAPPED = {"model = nn.DataParallel(model)": 12, "model = Net()": 11}


def case(places: dict[str, int], function: str = "torch.nn.parallel.parallel_apply.parallel_apply") -> Case:
    line = LineGroup((LINE,), 60 * MS, "forward", libraries=((function, 40 * MS),))
    return Case(extra={"lines": (line,), "statements": (Statement(LINE, "out = model(x)", places=places),)})


def test_the_line_that_wraps_the_model_is_named() -> None:
    (found,) = case(WRAPPED).raised("BRR706")
    assert found.where[0].place == (LINE.file, 12) and found.severity == "note"
    assert found.saving.expected_ns == 0 and found.saving.ceiling_ns >= 40 * MS


@pytest.mark.parametrize("made", [
    case({"model = DistributedDataParallel(model)": 12}), case({"class DataParallel(nn.Module):": 12}),
    case(WRAPPED, "torch.nn.functional.linear"), case({"model = Net()": 11}),
])  # fmt: skip
def test_what_is_no_data_parallel_or_copies_nothing_is_silent(made: Case) -> None:
    assert not made.raised("BRR706")
