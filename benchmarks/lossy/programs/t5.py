"""Perplexity of a byte-level T5 that fills in spans cut out of source code (its own pretraining task), on held-out files."""

import argparse
import json
import random
import sysconfig
from math import exp
from pathlib import Path

import torch
from transformers import T5Config, T5ForConditionalGeneration

PAD, EOS, SENTINEL = 0, 1, 256
LENGTH, SPANS, SPAN = 80, 2, 6


def build():
    return T5ForConditionalGeneration(T5Config(
        vocab_size=260, d_model=256, d_kv=64, num_heads=4, d_ff=1024, num_layers=3, num_decoder_layers=3,
        dropout_rate=0.0, pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD,
    ))  # fmt: skip


def read(train):
    files = sorted((Path(sysconfig.get_path("stdlib")) / "asyncio").glob("*.py"))
    held_out = files[::5]
    return b"".join(file.read_bytes() for file in files if (file in held_out) != train)


def cut(text):
    """A window without its spans, each replaced by a sentinel; and the spans behind theirs."""
    start = random.randrange(len(text) - LENGTH)
    window = list(text[start : start + LENGTH])
    source, target, at = [], [], 0
    for number in range(SPANS):
        place = random.randrange(at + 1, LENGTH * (number + 1) // SPANS - SPAN)
        source += window[at:place] + [SENTINEL + number]
        target += [SENTINEL + number] + window[place : place + SPAN]
        at = place + SPAN
    return source + window[at:] + [EOS], target + [EOS]


def collate(text, size):
    sources, targets = zip(*(cut(text) for _ in range(size)))
    return {"input_ids": torch.tensor(sources), "labels": torch.tensor(targets)}


def evaluate(model, text, batches, size):
    total = 0.0
    for _ in range(batches):
        with torch.no_grad():
            total += model(**collate(text, size)).loss.item()
    return {"eval_loss": total / batches, "eval_perplexity": exp(total / batches)}


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--model-dir", default="t5")
    ap.add_argument("--batches", type=int, default=60)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--seed", type=int, default=0)
    cli = ap.parse_args()
    random.seed(cli.seed)
    net = T5ForConditionalGeneration.from_pretrained(cli.model_dir)
    net.eval()
    print(json.dumps(evaluate(net, read(train=False), cli.batches, cli.batch_size)))
