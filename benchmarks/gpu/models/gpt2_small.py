"""Next-word prediction with GPT-2 small, attention eager: what FlashAttention was held against."""

import argparse
import os

import torch
from corpus import rows
from plain import Language
from torch.utils.data import DataLoader

try:
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError:
    GPT2LMHeadModel = None

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
VOCABULARY, LENGTH, BATCH = (1000, 32, 2) if TINY else (50257, 1024, 4)
WIDTH, HEADS, LAYERS = (32, 2, 1) if TINY else (768, 12, 12)


def model():
    if GPT2LMHeadModel is None:
        return Language(VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_head=HEADS, n_layer=LAYERS,
                        bos_token_id=0, eos_token_id=0)  # fmt: skip
    config._attn_implementation = "eager"
    return GPT2LMHeadModel(config)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.manual_seed(0)
    gpt = model().to(DEVICE)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=3e-4, weight_decay=0.1)
    loader = DataLoader(rows(VOCABULARY, LENGTH), batch_size=BATCH, shuffle=True, drop_last=True)
    step = 0
    while step < args.steps:
        for ids in loader:
            ids = ids.to(DEVICE)
            loss = gpt(input_ids=ids, labels=ids)[0]  # <- BRR110
            optimizer.zero_grad()
            loss.backward()  # <- BRR110
            torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
            step += 1
            if step == args.steps:
                return


if __name__ == "__main__":
    main()
