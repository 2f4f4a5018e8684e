"""Edits of programs that generate: the edited program gives the same answers, and what may not be batched stays."""

import ast
from itertools import count

import pytest
import torch

from gobrrr.remedies.edits.catalogue import edit
from gobrrr.remedies.edits.source import Source
from tests.support.generation import prompts, writer

HEAD = "import torch\nimport transformers\n\n"
NAMED = count()


def edited(name, text, line=0):
    source = Source(text)
    change = edit(name).change
    assert change is not None
    return source.with_changes(change(source, [line] if line else []))


def ran(text, **names):
    """What a program appends to `out`."""
    space = {"model": writer(), "out": [], "prompts": prompts(9), **names}
    exec(compile(text.replace("import transformers\n", ""), f"program{next(NAMED)}", "exec"), space)
    return [each.tolist() if isinstance(each, torch.Tensor) else each for each in space["out"]]


LOOPS = [
    "for p in prompts:\n    out.append(model.generate(p, max_new_tokens=9))\n",
    "for n, p in enumerate(prompts):\n    x = model.generate(p, max_new_tokens=9)\n    out.append((n, x.tolist()))\n",
    "for p in (each for each in prompts):\n    ids = p.clone()\n"
    "    out.append(model.generate(input_ids=ids, max_new_tokens=9))\n",
    "for p in prompts:\n    given = dict(input_ids=p)\n    made = model.generate(**given, max_new_tokens=9)\n"
    "    out.append(made[0, given['input_ids'].shape[1]:])\n",
    "def run():\n    for p in prompts:\n        out.append(model.generate(p, max_new_tokens=9, do_sample=0))\nrun()\n",
    "for p in prompts[0], prompts[3]:\n    out.append(model.generate(p, max_new_tokens=9))\n",
    "found = {}\nfor n, p in enumerate(prompts):\n    ids = torch.cat([\n        p,  # twice\n        p,\n    ], 1)\n"
    "    found[n] = model.generate(ids, max_new_tokens=9)\n    print(n, len(ids))\nout.extend(found.values())\n",
    "def run():\n    for p in prompts:\n        ids = torch.cat([p, p[:, : len('''a\nb''')]], 1)\n"
    "        out.append(str(model.generate(ids, max_new_tokens=9)))\nrun()\n",
]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_over_prompts_gives_the_same_answers_in_batches(loop):
    after = edited("batched_prompts", HEAD + loop)
    assert "gobrrr.data.generated(" in after
    assert ran(after) == ran(HEAD + loop)
    assert edited("batched_prompts", after) == after


@pytest.mark.parametrize("loop", [
    "for p in prompts:\n    out.append(model.generate(p, max_length=20))\n",
    "for p in prompts:\n    out.append(model.generate(p, max_new_tokens=9, do_sample=True))\n",
    "for p in prompts:\n    out.append(model.generate(p, max_new_tokens=len(out)))\n    out = out + [1]\n",
    "for p in prompts:\n    x = model.generate(p, max_new_tokens=9)\n    if len(out) > 3:\n        break\n",
    "for n in range(3):\n    text = model.generate(text, max_new_tokens=9)\n",
    "for p in prompts:\n    text = torch.cat([text, p], 1)\n    text = model.generate(text, max_new_tokens=9)\n",
    "for p in prompts:\n    x = model.generate(p, max_new_tokens=9)\n    prompts.append(x)\n",
    "for p in prompts:\n    if n:\n        p = p[:, 1:]\n    x = model.generate(p, max_new_tokens=9)\n",
    "for p in prompts:\n    if n:\n        x = model.generate(p, max_new_tokens=9)\n",
    "for p in prompts:\n    x = model.generate(p, max_new_tokens=9, num_beams=4)\n",
    "x = model.generate(p, max_new_tokens=9)\n",
    "for p in prompts:\n    if not len(p):\n        continue\n    x = model.generate(p, max_new_tokens=9)\n",
    "for p in prompts:\n    if len(p):\n        raise ValueError\n    x = model.generate(p, max_new_tokens=9)\n",
    "for p in prompts:\n    x = found.pop() or model.generate(p, max_new_tokens=9)\n",
    "for p in prompts:\n    x = model.generate(p, max_new_tokens=9) if len(p) else None\n",
    "for p in prompts:\n    x = 1 < len(p) < len(model.generate(p, max_new_tokens=9))\n",
    "for p in prompts:\n    x = tok(said + p)\n    said.append(model.generate(x, max_new_tokens=9))\n",
    "for p in prompts:\n    x = tok(said + p)\n    x = model.generate(x, max_new_tokens=9)\n    note(x, said)\n",
    "for p in prompts:\n    x = chat.prompt(p)\n    y = model.generate(x, max_new_tokens=9)\n",
    "for p in prompts:\n    x = tok(chat.all, p)\n    y = model.generate(x, max_new_tokens=9)\n    chat.said(y)\n",
    "for p in prompts:\n    x = p.clone()\n    x.add_(1)\n    y = model.generate(x, max_new_tokens=9)\n",
    "for p in prompts:\n    x = p.clone()\n    if n:\n        x = n\n    y = model.generate(x, max_new_tokens=9)\n",
    "for n in range(3):\n    y = model.generate(prompts[n], max_new_tokens=9)\n    prompts[n + 1].add_(y)\n",
    "for n in sizes:\n    y = model.generate(torch.randint(0, 9, (1, n)), max_new_tokens=9)\n",
    "for p in prompts:\n    x = model.generate(p, max_new_tokens=9)\n    model.reset(x)\n",
    "import sys\nfor p in sys.stdin:\n    print(model.generate(tok(p), max_new_tokens=9))\n",
    "for p in iter(queue.get, None):\n    print(model.generate(tok(p), max_new_tokens=9))\n",
    "for p in listen():\n    print(model.generate(tok(p), max_new_tokens=9))\n",
    "for n, p in enumerate(prompts):\n    x = model.generate(p, max_new_tokens=n)\n",
    "def run(prompts_now):\n    for p in prompts_now:\n        x = model.generate(p, max_new_tokens=9)\n",
    *(f"for p in prompts:\n    x = model.generate(p, max_new_tokens=9, {each})\n" for each in (
        "stop_strings=stop", "stopping_criteria=stop", "no_repeat_ngram_size=2", "min_length=9", "logits_processor=own",
        "repetition_penalty=1.2")),
])  # fmt: skip
def test_other_loops_stay_as_they_are(loop):
    assert edited("batched_prompts", HEAD + loop) == HEAD + loop


def test_programs_of_other_libraries_stay_as_they_are():
    text = "import torch\n" + LOOPS[0]
    for name in ("batched_prompts", "prompt_lookup", "key_value_cache"):
        assert edited(name, text) == text


def test_lookup_is_set_where_nothing_is_drawn():
    text = HEAD + "a = model.generate(x, max_new_tokens=9)\nb = model.generate(x, do_sample=True)\n"
    after = edited("prompt_lookup", text)
    assert after == text.replace("=9)", "=9, prompt_lookup_num_tokens=10)")
    assert edited("prompt_lookup", after) == after


def test_the_models_own_copy_guesses_where_nothing_else_does():
    text = HEAD + "a = self.lm.generate(x, max_new_tokens=9)\nb = model.generate(x, assistant_model=small)\n"
    after = edited("int8_draft", text)
    said = "=9, assistant_model=gobrrr.layers.int8_draft(self.lm))"
    assert said in after and "import gobrrr.layers" in after and after.count("int8_draft") == 1
    assert edited("int8_draft", after) == after
    assert "int8_draft" not in edited("int8_draft", HEAD + "a = models[next(n)].generate(x, max_new_tokens=9)\n")


def test_an_index_is_not_what_a_method_changes():
    text = HEAD + (
        "for i in range(len(prompts)):\n"
        "    out = model.generate(prompts[i], max_new_tokens=9, do_sample=False)\n"
        "    found[i].note(1)\n"
    )
    assert "prompts_ahead" in edited("batched_prompts", text)


def test_a_lookup_stands_beside_no_draft_and_behind_any_model():
    text = HEAD + "a = make().generate(x, max_new_tokens=9)\n"
    assert "prompt_lookup_num_tokens" in edited("prompt_lookup", text)
    text = HEAD + "a = model.generate(x, prompt_lookup_num_tokens=3)\nb = model.generate(x, use_cache=False)\n"
    assert edited("int8_draft", text) == text


def test_generate_keeps_keys_where_it_was_told_not_to():
    text = HEAD + "a = model.generate(x, use_cache=False)\nb = model.generate(x)\n"
    assert edited("key_value_cache", text) == text.replace("False", "True")


class Kept:
    """transformers.DynamicCache, as far as the edit uses it."""

    def __init__(self):
        self.sum = torch.zeros(1, 50)
        self.length = 0

    def get_seq_length(self):
        return self.length


class Sums:
    """A causal model: the logits of a token are those of all before it and its own."""

    read = 0

    def __call__(self, ids, past_key_values=None, use_cache=False):
        Sums.read += ids.shape[1]
        table = torch.arange(2500).reshape(50, 50) * 7919 % 1013
        before = past_key_values.sum if past_key_values else torch.zeros(1, 50)
        logits = table[ids].float().cumsum(1) + before[:, None]
        if past_key_values:
            past_key_values.sum, past_key_values.length = logits[:, -1], past_key_values.length + ids.shape[1]
        return type("Output", (), {"logits": logits})


@pytest.mark.parametrize("read", [
    "    last = model(ids).logits[:, -1]\n    ids = torch.cat([ids, last.argmax(-1, keepdim=True)], dim=1)\n",
    "    made = model(ids)\n    ids = torch.cat((ids, made.logits[:, -1, :].argmax(-1, keepdim=True)), dim=-1)\n",
    "    made = model(ids).logits\n    ids = torch.cat([ids, made[0, -1].argmax().view(1, 1)], dim=1)\n",
    "    ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)\n",
])  # fmt: skip
def test_a_loop_that_reads_all_again_keeps_what_it_read(read):
    text = f"{HEAD}ids = torch.tensor([[3, 9, 4]])\nfor _ in range(8):\n{read}out.append(ids)\n"
    after = edited("key_value_cache", text)
    library = type("transformers", (), {"DynamicCache": Kept})
    Sums.read = 0
    assert ran(text, model=Sums()) == ran(after, model=Sums(), transformers=library)
    assert Sums.read == sum(range(3, 11)) + 10
    ast.parse(after)


@pytest.mark.parametrize("read", [
    "    made = model(ids).logits\n    ids = torch.cat([ids, made.argmax(-1)[:, -1:]], dim=1)\n",
    "    made = model(ids, mask).logits[:, -1]\n    ids = torch.cat([ids, made], dim=1)\n",
    "    made = model(ids).logits[:, -1]\n    ids = torch.cat([ids[:, 1:], made], dim=1)\n",
    "    made = model(ids).logits[:, -1]\n    ids = torch.cat([ids, made], dim=1)\n    ids = ids[:, -9:]\n",
    "    made = model(ids).logits[:, -1]\n    ids = torch.cat([ids, made])\n",
    "    made = model(ids).logits[:, -1]\n    ids = torch.cat([ids, made], dim=0)\n",
    "    made = model(ids).logits[:, -1]\n    ids = torch.cat([ids, made], dim=1)\n    ids[:, 0] = 3\n",
    "    made = model(ids).logits[:, -1]\n    ids = torch.cat([ids, made], dim=1)\n    ids.clamp_(3)\n",
    "    made = model(ids).logits[:, -1]\n    made.sum().backward()\n    ids = torch.cat([ids, made], dim=1)\n",
    "    made = model(ids).logits[:, -1]\n    if n:\n        ids = torch.cat([ids, made], dim=1)\n",
])  # fmt: skip
def test_loops_that_need_more_than_the_last_logits_stay(read):
    text = f"{HEAD}for _ in range(8):\n{read}"
    assert edited("key_value_cache", text) == text
