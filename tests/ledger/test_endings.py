"""Which rank of a job that failed is named."""

from __future__ import annotations

from gobrrr.ledger.job.endings import Stood, first_to_end
from gobrrr.recording.model.endings import Ending
from gobrrr.recording.model.facts import Span


def stood(rank: int, steps: int, error: str | None = "", line: int = 0, peer: bool = False, ended: int = 0) -> Stood:
    where = Span("/w/train.py", line) if line else None
    ending = None if error is None else Ending(pid=rank, error=error, peer=peer, where=where, ended=ended)
    return Stood(rank, steps, "backward", ending)


def test_the_rank_with_an_error_of_its_own_ended_first() -> None:
    said, lines = first_to_end([stood(0, 151, "RuntimeError", 13, peer=True), stood(1, 150, "ValueError", 7)])
    assert said == "Rank 1 ended first, with ValueError at train.py:7 after 150 steps, in backward."
    assert lines[0] == "rank 0 ended with RuntimeError at train.py:13 after 151 steps, in backward"


def test_of_two_errors_the_earlier_one_counts() -> None:
    assert "Rank 2" in first_to_end([stood(0, 9, "KeyError", 3, ended=20), stood(2, 9, "KeyError", 3, ended=10)])[0]


def test_a_killed_rank_left_no_words_and_the_others_lack_it() -> None:
    said, _ = first_to_end([stood(0, 150, "RuntimeError", 13, peer=True), stood(1, 149, None)])
    assert said == "Rank 1 hung or was killed, last seen after 149 steps, in backward; the others then failed."
    said, _ = first_to_end([stood(0, 150, "RuntimeError", 13, peer=True), stood(1, 149, None), stood(2, 120, None)])
    assert said.startswith("Rank 2 hung or was killed, as were 1 more, last seen after 120 steps")


def test_a_rank_that_left_without_an_error_is_named_where_the_others_then_failed() -> None:
    gone, lost = stood(1, 100, ended=5), stood(0, 101, "DistBackendError", 13, peer=True, ended=9)
    assert first_to_end([lost, gone])[0].startswith("Rank 1 left first, by an exit or at its end, after 100 steps")
    assert first_to_end([lost, stood(1, 100, ended=12)])[0] == "", "it came to its end later"


def test_who_stopped_a_hanging_job_is_told_where_the_late_rank_stood() -> None:
    ranks = [
        stood(0, 40, "KeyboardInterrupt", 13),
        stood(1, 40, "KeyboardInterrupt", 7),
        stood(2, 40, "KeyboardInterrupt", 13),
    ]
    assert "rank 1 at train.py:7" in first_to_end(ranks)[0]
    assert "rank 1" in first_to_end([stood(0, 41, "KeyboardInterrupt", 13), stood(1, 40, "KeyboardInterrupt", 13)])[0]
    assert first_to_end(ranks[:1] + ranks[2:])[0] == "", "all at the same line: nobody is late"
    assert "rank 0 at train.py:13 after 40 steps, in backward; rank 1 at train.py:7" in first_to_end(ranks[:2])[0]


def test_a_rank_that_still_runs_was_not_killed() -> None:
    alive = [stood(rank, 40, None)._replace(lives=True) for rank in (0, 1)]
    assert first_to_end(alive) == ("", ())
    said, lines = first_to_end([alive[0], stood(1, 39, "ValueError", 7)])
    assert "Rank 1 ended first" in said and lines[0] == "rank 0 still runs, last seen after 40 steps, in backward"


def test_of_ranks_that_left_no_words_the_one_that_was_over_first_is_named() -> None:
    """torchrun stops the others by a signal, of which they say nothing."""
    over = [stood(rank, 40, None)._replace(gone=gone) for rank, gone in ((0, 10**9 + 10**8), (1, 10**9))]
    assert first_to_end(over)[0].startswith("Rank 1 was over first, last seen after 40 steps")
    assert first_to_end([each._replace(gone=10**9) for each in over])[0] == "", "killed as a whole"


def test_nothing_is_said_of_a_job_in_which_no_rank_failed() -> None:
    assert first_to_end([stood(0, 40), stood(1, 40)]) == ("", ())
    said, lines = first_to_end([stood(0, 40, None), stood(1, 40, None)])
    assert said == "" and len(lines) == 2, "killed as a whole"
