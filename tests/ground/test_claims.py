"""Every claim of the course has an answer that exists, and the page of them is of today."""

from __future__ import annotations

import pytest

pytest.importorskip("tomllib")

from benchmarks import claims

ROWS = [row for rows in claims.claims().values() for row in rows]


def test_all_rows_are_there_in_their_order() -> None:
    assert [number for number, _, _ in ROWS] == list(range(1, 82))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
def test_a_claim_is_answered_by_what_there_is(row: claims.Claim) -> None:
    number, says, answers = row
    assert says and answers
    assert [answer for answer in answers if claims.unknown(answer)] == [], number


@pytest.mark.parametrize(
    "answer", ["lab:999", "BRR999", "remedy:none_such", "part:none_such", "`gobrrr none_such`", "not built:", "words"]
)
def test_what_is_not_there_is_no_answer(answer: str) -> None:
    assert claims.unknown(answer)


def test_the_page_is_of_today() -> None:
    assert claims.PAGE.read_text(encoding="utf-8") == claims.page(), "python -m benchmarks.claims"
