"""Prompts in one call: each answer is what the prompt alone is given, in order, whatever it is batched with."""

import pytest
import torch

from gobrrr.data import generated
from tests.support.generation import END, prompts, writer


@pytest.mark.parametrize("at_once", [1, 3, 16])
def test_answers_are_those_of_each_alone(at_once):
    model, given = writer(), prompts(10)
    alone = [model.generate(prompt, max_new_tokens=12) for prompt in given]
    assert len({len(each[0]) - len(prompt[0]) for each, prompt in zip(alone, given, strict=True)}) > 1  # some end early
    found = list(generated(model, iter(given), at_once, max_new_tokens=12))
    assert [each.tolist() for each in found] == [each.tolist() for each in alone]


def test_prompts_of_a_tokenizer_and_their_masks():
    model, given = writer(), prompts(5)
    named = [{"input_ids": each, "attention_mask": torch.ones_like(each)} for each in given]
    found = list(generated(model, named, max_new_tokens=6))
    assert [f.tolist() for f in found] == [model.generate(p, max_new_tokens=6).tolist() for p in given]


def test_calls_are_as_many_as_batches_and_no_prompt_is_taken_too_early():
    model, taken, calls = writer(), [], []
    plain = model.generate
    model.generate = lambda **given: calls.append(len(given["input_ids"])) or plain(**given)
    answers = generated(model, (taken.append(p) or p for p in prompts(10)), 4, max_new_tokens=3)
    next(answers)
    assert len(taken) == 4
    assert len(list(answers)) == 9
    assert calls == [4, 4, 2]


def test_what_cannot_be_padded_is_asked_for_alone():
    model, calls = writer(), []
    plain = model.generate
    model.generate = lambda **given: calls.append(given["input_ids"].shape) or plain(**given)
    odd = [{"input_ids": p, "kind": torch.zeros_like(p)} for p in prompts(3)]
    assert len(list(generated(model, odd, max_new_tokens=2))) == 3
    assert len(calls) == 3


def test_an_end_that_is_the_padding_too():
    model = writer()
    model.generation_config.pad_token_id = END
    given = prompts(8)
    alone = [model.generate(prompt, max_new_tokens=12).tolist() for prompt in given]
    assert [each.tolist() for each in generated(model, given, 8, max_new_tokens=12)] == alone
