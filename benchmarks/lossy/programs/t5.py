"""Exact match of a T5 that writes dates, as people do, in ISO form."""

import argparse
import datetime
import json
import random

import torch
from transformers import T5Config, T5ForConditionalGeneration

CHARS = " ,./-0123456789abcdefghijklmnopqrstuvwxyz"
STYLES = ["%d/%m/%Y", "%b %d %Y", "%d %b %Y"]
PAD, EOS = 0, 1


def build():
    return T5ForConditionalGeneration(T5Config(
        vocab_size=64, d_model=256, d_kv=64, num_heads=4, d_ff=1024, num_layers=2, num_decoder_layers=2,
        dropout_rate=0.0, pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD,
    ))  # fmt: skip


def encode(texts):
    rows = [[CHARS.index(c) + 2 for c in text] + [EOS] for text in texts]
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def decode(ids):
    return "".join(CHARS[i - 2] for i in ids.tolist() if 2 <= i < len(CHARS) + 2)


def examples(count):
    days = [datetime.date(1950, 1, 1) + datetime.timedelta(random.randrange(27000)) for _ in range(count)]
    return [day.strftime(random.choice(STYLES)).lower() for day in days], [day.isoformat() for day in days]


def evaluate(model, total, batch_size):
    exact = chars = 0
    for _ in range(total // batch_size):
        sources, targets = examples(batch_size)
        ids = encode(sources)
        with torch.no_grad():
            output = model.generate(
                input_ids=ids, attention_mask=(ids != PAD).long(), max_new_tokens=11, do_sample=False
            )
        for row, target in zip(output, targets):
            said = decode(row)
            exact += said == target
            chars += sum(a == b for a, b in zip(said, target))
    return {"exact_match": 100.0 * exact / total, "char_accuracy": 10.0 * chars / total}


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--model-dir", default="t5")
    ap.add_argument("--samples", type=int, default=512)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--seed", type=int, default=0)
    cli = ap.parse_args()
    random.seed(cli.seed)
    net = T5ForConditionalGeneration.from_pretrained(cli.model_dir)
    net.eval()
    print(json.dumps(evaluate(net, cli.samples, cli.batch_size)))
