"""Figures of generate(), against the program's own clock."""

import numpy as np
import pytest

from gobrrr.ledger.steps.decoding import decoding
from gobrrr.recording.model import event_kinds as ev


def journal(*told):
    return np.array([(t, kind, number, value) for t, kind, number, value in told], np.int64).reshape(-1, 4)


def calls(num, rows, firsts, gap, prompt=7, tokens=5):
    """Each call: its begin, a question before the first token, one behind each."""
    found, clock, t = [], [], 1000
    for number in range(num):
        begun = t
        found += [(t, ev.GENERATE, -1, 0), (t + 1, ev.TOKENS, rows, prompt)]
        t += firsts[number]
        for token in range(tokens):
            found.append((t, ev.TOKENS, rows, prompt + token + 1))
            t += gap if token < tokens - 1 else 0
        clock.append(t - begun)
        t += 10_000  # the program's own work between two calls
    return found, clock


def test_rates_and_times_are_the_programs_own():
    told, clock = calls(4, 3, [400, 500, 600, 900], 100)
    found = decoding(journal(*told))
    assert found is not None
    assert (found.calls, found.rows, found.tokens) == (4, 3, 4 * 3 * 5)
    assert found.tokens_per_s == pytest.approx(1e9 * 60 / sum(clock))
    assert found.first_p50_ns == 550
    assert found.first_p99_ns == pytest.approx(np.quantile([400, 500, 600, 900], 0.99))
    assert (found.token_p50_ns, found.token_p99_ns) == (100, 100)


def test_a_round_of_several_tokens_shares_its_time():
    told = [(9, ev.GENERATE, -1, 0), (10, ev.TOKENS, 1, 10), (59, ev.TOKENS, 1, 11), (99, ev.TOKENS, 1, 15)]
    found = decoding(journal(*told))
    assert found is not None
    assert (found.tokens, found.token_p50_ns) == (5, 10)
    assert found.tokens_per_s == pytest.approx(5e9 / 90)


@pytest.mark.parametrize("kind", [ev.WINDOW_BEGIN, ev.REST_END, ev.ASIDE])
def test_what_gobrrr_took_is_left_out(kind):
    told, _ = calls(2, 1, [400, 400], 100)
    at = next(n for n, each in enumerate(told) if each[3] == 10)
    slow = [(t + 5000, *rest) for t, *rest in told[at:]]
    found = decoding(journal(*told[:at], (told[at][0] + 10, kind, 0, 0), *slow))
    assert found is not None
    assert (found.token_p50_ns, found.token_p99_ns, found.tokens) == (100, 100, 9)


def test_without_tokens_there_are_no_figures():
    assert decoding(journal()) is None
    assert decoding(journal((0, ev.GENERATE, -1, 0), (1, ev.TOKENS, 1, 4))) is None
