"""Perplexity of a byte-level GPT-2 on source code that it was not trained on."""

import math
import random
import sysconfig
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

BLOCK = 64
config = GPT2Config(vocab_size=256, n_positions=BLOCK, n_embd=256, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0)


def corpus(train):
    """Bytes of the standard library's modules: every fifth file is held out."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return b"".join(file.read_bytes() for i, file in enumerate(files) if (i % 5 != 0) == train)


def get_batch(data, size):
    starts = [random.randrange(len(data) - BLOCK) for _ in range(size)]
    return torch.tensor([list(data[s : s + BLOCK]) for s in starts])


if __name__ == "__main__":
    import argparse

    p = argparse.ArgumentParser()
    p.add_argument("--ckpt", default="gpt2")
    p.add_argument("--batches", type=int, default=40)
    p.add_argument("--batch", type=int, default=16)
    a = p.parse_args()

    random.seed(1234)
    model = GPT2LMHeadModel.from_pretrained(a.ckpt)
    model.eval()
    held_out = corpus(train=False)
    losses = []
    with torch.inference_mode():
        for i in range(a.batches):
            x = get_batch(held_out, a.batch)
            out = model(input_ids=x, labels=x)
            losses.append(out.loss.item())
    loss = sum(losses) / len(losses)
    print("eval loss %.4f  perplexity %.4f" % (loss, math.exp(loss)))
