"""Programs that generate text are compared token by token, however their prompts are batched."""

from functools import partial

import numpy as np
import pytest
import torch

from gobrrr.data import generated
from gobrrr.guard.model.tensor_digest import WHOLE
from gobrrr.guard.two_runs import compare
from gobrrr.guard.verdicts.tokens import chance_of
from gobrrr.guard.watch.generated import rows
from tests.support.generation import END, prompts, remembering, stands_in, writer


@pytest.fixture(autouse=True)
def library(monkeypatch):
    stands_in(monkeypatch)


def answers(at_once=1, change=None, num=9, **options):
    """A program: it answers prompts, some at once."""

    def program():
        torch.manual_seed(3)
        model, given = writer(), prompts(num)
        if change is not None:
            change(model, given)
        list(generated(model, given, at_once, **{"max_new_tokens": 10} | options))

    return program


def judged(candidate, baseline=None):
    return compare(baseline or answers(), candidate, float64=False, accepted=())


def test_the_same_and_batched_otherwise_match():
    assert judged(answers()).verdict == "exact"
    assert judged(answers(4)).verdict == "exact"


def test_a_beginning_that_is_read_once_is_no_call_of_the_program():
    reads = []

    def program(at_once):
        model, given = remembering((3, 9, 5, 1), 20)
        list(generated(model, given, at_once, max_new_tokens=4))
        reads.append((1, 20) in model.reads)

    assert judged(partial(program, 4), partial(program, 1)).verdict == "exact"
    assert set(reads) == {True, False}


def test_weights_that_are_made_int8_are_no_calls_of_a_model():
    def program(rounds):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)).eval()
        if rounds:
            torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})
        with torch.no_grad():
            for _ in range(4):
                model(torch.randn(2, 8))

    found = judged(partial(program, True), partial(program, False))
    assert found.green, found


def test_one_other_token_is_told_with_its_place():
    def later(model, given):
        plain, calls = model.forward, []

        def forward(ids, mask):
            logits = plain(ids, mask)
            calls.append(ids)
            if len(calls) == 23:
                logits = logits.roll(1, -1)
            return logits

        model.forward = forward

    found = judged(answers(change=later))
    assert found.verdict == "changed"
    assert found.reasons[0].startswith("outputs: sequence 3 is another from token ")


@pytest.mark.parametrize("fault", ["shorter", "swapped", "other prompt"])
def test_other_work_is_refused(fault):
    def swap(model, given):
        given[1], given[2] = given[2], given[1]

    def other(model, given):
        given[4] = given[4].roll(1)

    candidate = {"shorter": answers(max_new_tokens=6), "swapped": answers(change=swap),
                 "other prompt": answers(change=other)}[fault]  # fmt: skip
    assert judged(candidate).red


def test_fewer_prompts_are_refused():
    assert judged(answers(num=8)).red


def test_what_is_sampled_is_never_told_equal():
    drawn = answers(do_sample=True)
    found = judged(answers(4, do_sample=True), drawn)
    assert found.verdict == "unverified"
    assert "no other distribution (p = " in found.reasons[0]


def test_what_a_decoder_begins_by_itself_hides_nothing_behind_it():
    def program(turned):
        torch.manual_seed(3)
        model = writer()
        model.head.weight.data *= -1 if turned else 1
        for _ in range(9):
            model.generate(max_new_tokens=5)

    assert judged(partial(program, True), partial(program, False)).red
    assert judged(partial(program, False), partial(program, False)).verdict == "exact"


def test_what_is_sampled_otherwise_is_told():
    drawn = answers(do_sample=True, num=30)
    found = judged(answers(4, do_sample=True, num=30, temperature=0.1), drawn)
    assert found.verdict == "unverified"
    assert "show another distribution, if they are independent" in found.reasons[0]
    assert judged(answers(num=30), drawn).red, "greedy in the place of sampled"


def test_answers_in_another_order_of_tokens_are_no_other_ones():
    random = np.random.default_rng(0)
    drawn = [random.integers(0, 600, 300).astype(float) for _ in range(12)]
    assert chance_of([(each, each[::-1]) for each in drawn]) == 1.0


def test_answers_that_are_not_kept_whole_are_not_compared():
    def long(seed):
        model = writer()
        model.head.bias.data[END] = -1e9
        torch.manual_seed(seed)
        for _ in range(9):
            model.generate(max_new_tokens=WHOLE + 1, do_sample=True)

    found = judged(partial(long, 1), partial(long, 0))
    assert found.verdict == "unverified"
    assert "answers" not in found.reasons[0]


def test_a_decoder_that_begins_by_itself_has_new_tokens_behind_that():
    made = torch.tensor([[END, 5, 6, END], [END, 7, 8, 9]])
    assert [tokens.tolist() for _, tokens in rows(writer(), (), {}, made, begin=1)] == [[5, 6, END], [7, 8, 9]]


@pytest.mark.parametrize(("theirs", "least", "most"), [(1.0, 0.0, 0.1), (0.6, 0.8, 1.0)])
def test_distributions_differ_as_often_as_chance_has_it(theirs, least, most):
    random = np.random.default_rng(1)
    shares = [random.dirichlet(20 / np.arange(1, 41)) for _ in range(24)]

    def drawn(temperature):
        sharp = [share ** (1 / temperature) for share in shares]
        return [random.choice(40, 12, p=each / each.sum()).astype(float) for each in sharp]

    told = [chance_of(list(zip(drawn(1.0), drawn(theirs), strict=True))) <= 0.05 for _ in range(100)]
    assert least <= np.mean(told) <= most


def test_nothing_of_ours_stays(monkeypatch):
    from tests.support.generation import GenerationMixin

    before = dict(vars(GenerationMixin))
    judged(answers())
    assert dict(vars(GenerationMixin)) == before


def test_tokens_behind_an_end_count_where_the_call_says_that_there_is_none():
    made = torch.tensor([[5, 6, END, 7, END, 8]])
    for options, told in (({"eos_token_id": None}, [END, 7, END, 8]), ({}, [END]), ({"eos_token_id": 7}, [END, 7])):
        assert [tokens.tolist() for _, tokens in rows(writer(), (made[:, :2],), options, made)] == [told]
