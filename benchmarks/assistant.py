"""What guessing brings to one prompt at a time, with trained models: by the model's own copy in int8, by a smaller one,
or by what the text had before.

    python -m benchmarks.assistant --weights DIR [--pairs 5] [--tokens 128]

With an interpreter that has transformers 5. A GPT-2 and a Llama of 6 layers of 768 and a GPT-2 of 1 layer of 128 learn
the bytes of Python's standard library, minutes each where DIR has none yet; prompts are of files that were held out,
answers greedy, in float32. Pairs are interleaved in one process, the order changing; ratios are medians of CPU time.
Writes benchmarks/results/assistant-DATE.md.
"""

from __future__ import annotations

import argparse
import itertools
import random
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.decoding import RESULTS, measured
from benchmarks.lossy.programs.gpt2 import corpus
from benchmarks.lossy.train import fit
from benchmarks.stamp import stamp
from gobrrr.layers import int8_draft

SIZES = {"GPT-2": (6, 768, 250, 6e-4), "Llama": (6, 768, 250, 6e-4), "small": (1, 128, 1500, 1e-3)}
"""Layers, width, steps of training, learning rate."""
BLOCK, PROMPT = 512, 96
GUESSES: dict[str, dict[str, Any]] = {
    "its copy in int8": {"assistant_model": "int8"},
    "a smaller model": {"assistant_model": "small"},
    "the text, 10 tokens": {"prompt_lookup_num_tokens": 10},
}


def trained(name: str, folder: Path) -> Any:
    """The model of that size, from the folder or trained into it."""
    import torch
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    layers, width, steps, rate = SIZES[name]
    if (folder / name).exists():
        return AutoModelForCausalLM.from_pretrained(folder / name).eval()
    torch.manual_seed(0)
    ids = {"vocab_size": 256, "bos_token_id": 0, "eos_token_id": 0}
    if name == "Llama":
        sizes = {"hidden_size": width, "num_hidden_layers": layers, "intermediate_size": 2048}
        heads = {"num_attention_heads": width // 64, "num_key_value_heads": 4, "max_position_embeddings": BLOCK}
        model = LlamaForCausalLM(LlamaConfig(**ids, **sizes, **heads))
    else:
        model = GPT2LMHeadModel(GPT2Config(**ids, n_positions=BLOCK, n_embd=width, n_layer=layers, n_head=width // 64))
    data, drawn = corpus(train=True), random.Random(0)

    def loss() -> Any:
        starts = [drawn.randrange(len(data) - 128) for _ in range(16)]
        x = torch.tensor([list(data[start : start + 128]) for start in starts])
        return model(input_ids=x, labels=x).loss

    fit(model, loss, steps, rate)
    model.save_pretrained(folder / name)
    return model


def answers(model: Any, tokens: int, more: dict[str, Any], prompts: list[Any]) -> list[list[int]]:
    """What the program's own loop gives."""
    return [model.generate(prompt, max_new_tokens=tokens, do_sample=False, pad_token_id=0, **more)[0].tolist()
            for prompt in prompts]  # fmt: skip


def main() -> None:
    """Measure, print, write."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--weights", type=Path, required=True, metavar="DIR")
    asked.add_argument("--pairs", type=int, default=5)
    asked.add_argument("--tokens", type=int, default=128)
    asked.add_argument("--prompts", type=int, default=6)
    asked.add_argument("--train", choices=SIZES, help="do nothing but train this one")
    options = asked.parse_args()
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    if options.train:
        trained(options.train, options.weights)
        return
    models = {name: trained(name, options.weights) for name in SIZES}
    held_out, drawn = corpus(train=False), random.Random(1)
    starts = [drawn.randrange(len(held_out) - PROMPT) for _ in range(options.prompts)]
    prompts = [torch.tensor([list(held_out[start : start + PROMPT])]) for start in starts]
    head = stamp() | {"transformers": transformers.__version__, "threads": torch.get_num_threads()}
    lines = ["# One prompt at a time: tokens guessed", "", ", ".join(f"{name} {value}" for name, value in head.items()),
             "", f"Medians over {options.pairs} pairs, in turn, of {len(prompts)} prompts, {options.tokens} new tokens "
             "each, by trained byte models (`python -m benchmarks.assistant`). `different`: different tokens among all "
             "of the answers. A ratio above 1 is faster.",
             "", "| model | who guesses | different | ms per token | CPU time, plain / edited | wall | equal answers |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for large, (name, options_of) in itertools.product(("GPT-2", "Llama"), GUESSES.items()):
        guessing = {"int8": int8_draft(models[large]), "small": models["small"]}
        more = {key: guessing.get(value, value) for key, value in options_of.items()}
        sides = [partial(answers, models[large], options.tokens, given) for given in ({}, more)]
        got = measured((sides[0], sides[1]), prompts, options.pairs)
        each = 1000 * got["seconds"] / (options.tokens * len(prompts))
        lines.append(f"| {large} | {name} | {got['different']:.0%} | {each:.1f} | {got['cpu']:.2f} ({got['low']:.2f} "
                     f"to {got['high']:.2f}) | {got['wall']:.2f} | {got['equal']} of {got['of']} |")  # fmt: skip
        print(lines[-1], flush=True)
    (RESULTS / f"assistant-{head['date']}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
