"""Prompts in one call: each answer is what the prompt alone is given, in order, whatever it is batched with."""

from threading import get_ident
from types import SimpleNamespace

import pytest
import torch

from gobrrr.data import generated
from gobrrr.data import prompts as prompts_of
from tests.support.generation import (
    END,
    PAD,
    VOCAB,
    DynamicCache,
    DynamicLayer,
    Remembers,
    prompts,
    remembering,
    writer,
)


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


@pytest.mark.parametrize(
    "kind",
    ["places of its own", "a state", "other inputs", "stretched places", "places of some layers", "pictures", "sound"],
)
def test_padding_that_would_move_places_is_none(kind):
    model, calls = writer(), []
    plain = model.generate
    model.generate = lambda **given: calls.append(len(given["input_ids"])) or plain(**given)
    if kind == "places of its own":
        model.forward = lambda ids, mask: type(model).forward(model, ids, mask)
    elif kind == "a state":
        model._is_stateful = True
    elif kind == "other inputs":
        model.__class__ = type("Own", (type(model),), {"prepare_inputs_for_generation": lambda self: None})
    elif kind == "stretched places":
        model.config.rope_scaling = {"rope_type": "longrope"}
    elif kind == "places of some layers":
        model.config.rope_parameters = {"full_attention": {"rope_type": "dynamic"}}
    else:
        setattr(model.config, "vision_config" if kind == "pictures" else "audio_config", {})
    given = [*prompts(3), prompts(3)[2]]
    assert len(list(generated(model, given, max_new_tokens=2))) == 4
    assert calls == [1, 1, 1, 1]
    assert len(list(generated(model, given[2:], max_new_tokens=2))) == 2
    assert calls[4:] == [2]


def test_an_answer_whose_beginning_nobody_knows_is_asked_for_alone():
    model, calls = writer(), []
    model.main_input_name = "pictures"
    model.generate = lambda **given: calls.append(given) or torch.tensor([[END, 5, END]])
    found = list(generated(model, [torch.ones(1, 4)] * 2, max_new_tokens=2))
    assert [each.tolist() for each in found] == [[[END, 5, END]]] * 2
    assert [len(each["pictures"]) for each in calls] == [1, 1]


def test_padding_in_what_an_encoder_reads_is_left_as_it_is():
    model, calls = writer(), []
    model.config.is_encoder_decoder = True
    model.generate = lambda **given: calls.append(given) or torch.ones(len(given["input_ids"]), 3).long()
    clean, padded = torch.tensor([[5, 6, 7]]), torch.tensor([[5, PAD, PAD, PAD]])
    assert len(list(generated(model, [clean, padded], max_new_tokens=2))) == 2
    assert [len(each["input_ids"]) for each in calls] == [1, 1]
    assert len(list(generated(model, [clean, clean[:, :2]], max_new_tokens=2))) == 2
    assert calls[2]["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert calls[2]["input_ids"].tolist() == [[5, 6, 7], [5, 6, PAD]]
    masked = {"input_ids": padded, "attention_mask": torch.tensor([[1, 0, 0, 0]])}
    assert len(list(generated(model, [clean, masked], max_new_tokens=2))) == 2
    assert calls[3]["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]


def test_an_end_that_is_the_padding_too():
    model = writer()
    model.generation_config.pad_token_id = END
    given = [torch.cat([torch.full((1, 2), END), each], 1) for each in prompts(8)]
    alone = [model.generate(prompt, max_new_tokens=12).tolist() for prompt in given]
    assert [each.tolist() for each in generated(model, given, 8, max_new_tokens=12)] == alone


def test_prompts_of_several_rows_are_refused_behind_the_answers_before_them():
    model, given = writer(), prompts(3)
    for wrong in (torch.ones(4, 6).long(), torch.ones(1).long(), {"input_ids": torch.ones(2, 3).long()}):
        answers = generated(model, [*given, wrong], max_new_tokens=6)
        for each in given:
            assert next(answers).tolist() == model.generate(each, max_new_tokens=6).tolist()
        with pytest.raises(ValueError, match="one row"):
            next(answers)


def test_a_prompt_that_the_model_refuses_leaves_the_answers_before_it():
    model, given = writer(), prompts(4)
    answers = generated(model, [*given[:2], given[2] + 1000, given[3]], max_new_tokens=6)
    found = [next(answers).tolist() for _ in range(2)]
    assert found == [model.generate(each, max_new_tokens=6).tolist() for each in given[:2]]
    with pytest.raises(IndexError):
        next(answers)


@pytest.mark.parametrize("options", [
    {"num_return_sequences": 2}, {"return_dict_in_generate": True}, {"stop_strings": ["x"]}, {"min_length": 9},
    {"stopping_criteria": [len]}, {"logits_processor": [len]}, {"no_repeat_ngram_size": 1}, {"repetition_penalty": 1.2},
    {"max_new_tokens": None},
])  # fmt: skip
@pytest.mark.parametrize("place", ["call", "its configuration", "the model's"])
def test_options_that_a_batch_would_answer_otherwise_are_refused(options, place):
    model = writer()
    if place == "the model's":
        vars(model.generation_config).update(options)
        options = {}
    given = {"generation_config": SimpleNamespace(**options)} if place == "its configuration" else options
    given = given if {"max_new_tokens"} & {*options, *vars(model.generation_config)} else {"max_new_tokens": 9} | given
    with pytest.raises(ValueError, match=r"max_new_tokens: a|cannot batch prompts with \w+: call"):
        next(generated(model, prompts(3), **given))


def test_an_option_that_does_nothing_is_no_reason():
    assert len(list(generated(writer(), prompts(3), max_new_tokens=2, num_return_sequences=1, min_length=None))) == 3


def test_no_end_is_what_was_asked_for():
    made = list(generated(writer(), prompts(10), max_new_tokens=12, eos_token_id=None))
    assert [len(row[0]) for row in made] == [len(prompt[0]) + 12 for prompt in prompts(10)]


def test_padding_within_a_prompt_is_masked_as_generate_does_it():
    model, given = writer(), prompts(5)
    padded = [torch.nn.functional.pad(each, (2, 0), value=PAD) for each in given]
    plain = [model.generate(each, max_new_tokens=6)[0, each.shape[1] :].tolist() for each in given]
    made = list(generated(model, padded, max_new_tokens=6))
    assert [row[0, each.shape[1] :].tolist() for row, each in zip(made, padded, strict=True)] == plain


@pytest.mark.parametrize("lengths", [(3, 9, 5, 1), (4, 4, 4), (1, 40), (0, 7, 3), (1, 60)])
def test_what_all_prompts_begin_with_is_read_once(lengths):
    model, given = remembering(lengths, 20)
    alone = [model.generate(prompt, max_new_tokens=4).tolist() for prompt in given]
    assert len({tuple(each[0][-4:]) for each in alone}) > 1
    model.reads = []
    assert [each.tolist() for each in generated(model, given, max_new_tokens=4)] == alone
    assert model.reads == [(1, 20), *((len(given), max(lengths) + n) for n in range(4))]


@pytest.mark.parametrize(
    "why", ["few", "other layers", "no layers", "more than layers", "not kept", "beams", "a cache of its own", "masked"]
)
def test_a_beginning_that_is_read_for_each(why):
    other = type("Other", (Remembers,), {"layer": type("DynamicSlidingWindowLayer", (DynamicLayer,), {})})
    model, given = remembering((3, 9), 15 if why == "few" else 30, other if why == "other layers" else Remembers)
    if why == "no layers":
        model.cache = lambda layer: DynamicCache()
    elif why == "more than layers":
        model.cache = type("LinearCache", (DynamicCache,), {})
    options = {"not kept": {"use_cache": False}, "beams": {"num_beams": 2}, "a cache of its own": {
        "cache_implementation": "static"}}.get(why, {})  # fmt: skip
    masks = [torch.ones_like(each) for each in given]
    if why == "masked":
        masks[0][0, 4] = 0
    named = [{"input_ids": each, "attention_mask": mask} for each, mask in zip(given, masks, strict=True)]
    alone = [model.generate(**each, max_new_tokens=4).tolist() for each in named]
    caches, plain = [], model.generate
    model.generate = lambda **all_: caches.append(all_.get("cache")) or plain(**all_)
    assert [each.tolist() for each in generated(model, named, max_new_tokens=4, **options)] == alone
    assert caches == [None]


def test_an_option_of_the_models_own_is_for_reading_too():
    model, given = remembering((3, 9), 20)
    model.generate = lambda position_ids, **options: type(model).generate(model, **options)
    list(generated(model, given, max_new_tokens=2, position_ids=None))
    assert model.reads[0] == (2, 29)


@pytest.mark.parametrize("off", [False, None, 0])
def test_a_cache_that_is_not_kept_is_not_filled(off):
    model, given = remembering((3, 9), 20)
    list(generated(model, given, max_new_tokens=2, use_cache=off))
    assert model.reads[0] == (2, 29)


def test_the_last_token_of_a_prompt_is_left_to_read():
    for shared, lengths, reads in ((20, (0, 0), [(1, 19), (2, 1)]), (16, (3, 9), [(1, 16), (2, 9)])):
        model, given = remembering(lengths, shared)
        list(generated(model, given, max_new_tokens=2, num_beams=1))
        assert model.reads[:2] == reads


def test_a_beginning_ends_at_the_first_other_token():
    model, given = remembering((6,), 20)
    other = given[0].clone()
    other[0, 20] += 1 if other[0, 20] < VOCAB - 1 else -1
    list(generated(model, [given[0], other], max_new_tokens=2))
    assert model.reads[:2] == [(1, 20), (2, 6)]


@pytest.mark.parametrize("kinds", [{"layer_types": ["full_attention", "sliding_attention"]}, {"sliding_window": 9}])
def test_windows_are_asked_for_before_anything_is_read(kinds):
    model, given = remembering((3, 9), 20)
    vars(model.config).update(kinds)
    list(generated(model, given, max_new_tokens=2))
    assert model.reads[0] == (2, 29)


class Older(Remembers):
    """It has the older name, takes another option, and may not be asked for ids alone."""

    fails = False

    def forward(
        self, ids, mask=None, position_ids=None, past_key_values=None, use_cache=False, logits_to_keep=0, **more
    ):
        if use_cache:
            self.told = (torch.is_grad_enabled(), logits_to_keep, prompts_of.reading_ahead == get_ident())
            if self.fails:
                raise TypeError("nothing but ids")
        made = super().forward(ids, mask, None, more.get("cache", past_key_values), use_cache)
        return SimpleNamespace(past_key_values=made.cache) if use_cache else made

    def generate(self, input_ids, past_key_values=None, **options):
        self.given = past_key_values
        return super().generate(input_ids, cache=past_key_values, **options)


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_of_an_older_library_or_one_that_wants_more(fails):
    model, given = remembering((3, 9), 20, Older)
    model.fails = fails
    assert len(list(generated(model, given, max_new_tokens=2))) == 2
    assert model.told == (False, 1, True) and not prompts_of.reading_ahead
    assert (model.given is None) == fails and model.reads[-1] == ((2, 30) if fails else (2, 10))
