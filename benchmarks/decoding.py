"""What gobrrr's edits bring to programs that generate text: as people write them, and edited, in turn, tokens compared.

    python -m benchmarks.decoding [--pairs 5] [--tokens 32] [--compile]

With an interpreter that has transformers 5. Each program asks generate() for one answer after the other, greedy, in
float32; the other side is the same text with gobrrr's own edit made. Pairs are interleaved in one process, the order
changing; ratios are medians over the pairs, of CPU time and, which other processes disturb, of wall time. Models have
random weights: with small ones answers repeat a few tokens, which flatters a lookup in the text, with large ones they
hardly do; both are told. --compile adds a forward compiled over a static cache, made by hand, which takes minutes.
Writes benchmarks/results/decoding-DATE.md.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.stamp import stamp
from gobrrr.remedies.edits.catalogue import edit
from gobrrr.remedies.edits.source import Source

RESULTS = Path(__file__).parent / "results"
MODELS = {
    "GPT-2": ("GPT2", "GPT2LMHeadModel", "n_layer=6, n_embd=384, n_head=6, n_positions=512, initializer_range={std}"),
    "Llama": ("Llama", "LlamaForCausalLM",
              "num_hidden_layers=6, hidden_size=384, intermediate_size=1024, num_attention_heads=6, "
              "num_key_value_heads=2, initializer_range={std}"),
    "T5": ("T5", "T5ForConditionalGeneration",
           "num_layers=4, num_decoder_layers=4, d_model=384, d_kv=64, num_heads=6, d_ff=1024, "
           "decoder_start_token_id=0, pad_token_id=0, tie_word_embeddings=False"),
    "Whisper": ("Whisper", "WhisperForConditionalGeneration",
                "encoder_layers=4, decoder_layers=4, d_model=384, encoder_attention_heads=6, "
                "decoder_attention_heads=6, encoder_ffn_dim=1024, decoder_ffn_dim=1024, max_source_positions=250, "
                "decoder_start_token_id=1, pad_token_id=0, suppress_tokens=None, begin_suppress_tokens=None, "
                "init_std={std}"),
}  # fmt: skip
PROGRAM = """
import torch
import transformers
from transformers import {kind}Config, {model}

transformers.logging.set_verbosity_error()
torch.manual_seed(0)
config = {kind}Config(vocab_size=8000, bos_token_id=1, eos_token_id=2, {options})
model = {model}(config).eval()
{more}

def answers(prompts):
    found = []
    for prompt in prompts:
        output = model.generate(prompt, max_new_tokens={tokens}, do_sample=False{pad})
        found.append(output[0].tolist())
    return found
"""
OWN_HEAD = "model.lm_head.weight = torch.nn.Parameter(torch.randn(8000, 384) * {std})\n"
"""Of T5: one that shares its weights with the embedding gives the token that it was given, for ever."""
BY_HAND = 'model.forward = torch.compile(model.forward)\nmodel.generation_config.cache_implementation = "static"\n'


def program(name: str, std: float, tokens: int) -> str:
    """The text of one as people write it."""
    kind, model, options = MODELS[name]
    pad = ", pad_token_id=0" if name in ("GPT-2", "Llama") else ""
    more = OWN_HEAD.format(std=std) if name == "T5" else ""
    return PROGRAM.format(
        kind=kind, model=model, options=options.format(std=std), more=more, tokens=tokens, pad=pad)  # fmt: skip


def edited(text: str, name: str) -> str:
    """The same with an edit of gobrrr's. Raises ValueError where it finds no place."""
    source, change = Source(text), edit(name).change
    changes = change(source, []) if change is not None else []
    if not changes:
        raise ValueError(f"{name} finds no place")
    return source.with_changes(changes)


def loaded(text: str) -> Any:
    """Its function."""
    space: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, "program.py", "exec", dont_inherit=True), space)
    return space["answers"]


def prompts(name: str, num: int, shared: int = 0) -> list[Any]:
    """Of 12 to 39 tokens behind so many that are the same, or clips of sound."""
    import torch

    drawn = torch.Generator().manual_seed(1)
    if name == "Whisper":
        return [torch.randn(1, 80, 500, generator=drawn) for _ in range(num)]
    lengths = torch.randint(12, 40, (num,), generator=drawn).tolist()
    begins = torch.randint(3, 8000, (1, shared), generator=drawn)
    return [torch.cat([begins, torch.randint(3, 8000, (1, length), generator=drawn)], 1) for length in lengths]


def measured(sides: tuple[Any, Any], given: list[Any], pairs: int) -> dict[str, Any]:
    """Ratios of plain to edited, and whether all tokens are equal."""
    plain, other = (side(given) for side in sides)  # warm, and compiled
    ratios: list[tuple[float, float]] = []
    seconds = 0.0
    for number in range(pairs):
        took = [(0.0, 0.0), (0.0, 0.0)]
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            wall, cpu = time.perf_counter(), time.process_time()
            sides[side](given)
            took[side] = time.perf_counter() - wall, time.process_time() - cpu
        ratios.append((took[0][0] / took[1][0], took[0][1] / took[1][1]))
        seconds += took[0][1] / pairs
    walls, cpus = zip(*ratios, strict=True)
    equal = sum(a == b for a, b in zip(plain, other, strict=True))
    tokens = sum(map(len, plain))
    return {"cpu": median(cpus), "low": min(cpus), "high": max(cpus), "wall": median(walls), "equal": equal,
            "of": len(plain), "different": len({token for each in plain for token in each}) / tokens,
            "seconds": seconds}  # fmt: skip


def rows(pairs: int, new: int, compiled: bool) -> list[str]:
    """One line of the table for each model, edit and kind of text."""
    found = []
    for name in MODELS:
        cases = [("batched_prompts", 0.08, 16, 0)]
        cases += [("batched_prompts", 0.08, 16, 200)] if name in ("GPT-2", "Llama") else []
        cases += [("prompt_lookup", 0.08, 2, 0), ("int8_draft", 0.08, 2, 0)]
        cases += [("prompt_lookup", 0.02, 2, 0)] if name != "T5" else []  # the scale of its head changes no token
        cases += [("compiled, static cache", 0.08, 2, 0)] if compiled else []
        for what, std, num, shared in cases:
            text = program(name, std, new if num > 2 else 2 * new)
            after = text.replace("\ndef answers", BY_HAND + "\ndef answers") if "," in what else edited(text, what)
            if name == "Whisper" and num > 2:
                num = 8
            got = measured((loaded(text), loaded(after)), prompts(name, num, shared), pairs)
            told = f"{what}, {shared} tokens shared" if shared else what
            line = (f"| {name} | {told} | {num} | {got['different']:.0%} | {got['cpu']:.2f} ({got['low']:.2f} to "
                    f"{got['high']:.2f}) | {got['wall']:.2f} | {got['equal']} of {got['of']} |")  # fmt: skip
            print(line, flush=True)
            found.append(line)
    return found


def main() -> None:
    """Measure, print, write."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--pairs", type=int, default=5)
    asked.add_argument("--tokens", type=int, default=32, help="new ones of an answer; twice as many in a lookup's")
    asked.add_argument("--compile", action="store_true")
    options = asked.parse_args()
    import torch
    import transformers

    head = stamp() | {"transformers": transformers.__version__, "threads": torch.get_num_threads()}
    table = rows(options.pairs, options.tokens, options.compile)
    lines = ["# Decoding: generate() as people call it, and with gobrrr's edits", "",
             ", ".join(f"{name} {value}" for name, value in head.items()), "",
             f"Medians over {options.pairs} interleaved pairs; answers of {options.tokens} new tokens, a lookup's of "
             f"{2 * options.tokens}. `different`: different tokens among all of the answers; few mean that the text "
             "repeats, as it does with small random weights. A ratio above 1 is faster.",
             "", "| model | edit | prompts | different | CPU time, plain / edited | wall | equal answers |",
             "|---|---|---|---|---|---|---|", *table]  # fmt: skip
    (RESULTS / f"decoding-{head['date']}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
