"""Masked language modelling with BERT base, attention eager: what LightSeq2 was held against."""

import argparse
import os

import torch
from corpus import rows
from plain import Language
from torch.utils.data import DataLoader

try:
    from transformers import BertConfig, BertForMaskedLM
except ImportError:
    BertForMaskedLM = None

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
MASK = 3
VOCABULARY, LENGTH, BATCH = (1000, 32, 2) if TINY else (30522, 128, 32)
WIDTH, HEADS, LAYERS = (32, 2, 1) if TINY else (768, 12, 12)


def model():
    if BertForMaskedLM is None:
        return Language(VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, causal=False)
    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, hidden_size=WIDTH,
                        num_attention_heads=HEADS, num_hidden_layers=LAYERS, intermediate_size=4 * WIDTH)  # fmt: skip
    config._attn_implementation = "eager"
    return BertForMaskedLM(config)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    bert = model().to(DEVICE)
    optimizer = torch.optim.AdamW(bert.parameters(), lr=1e-4)
    loader = DataLoader(rows(VOCABULARY, LENGTH), batch_size=BATCH, shuffle=True, drop_last=True)
    step = 0
    while step < args.steps:
        for ids in loader:
            ids = ids.to(DEVICE)
            masked = torch.rand(ids.shape, device=DEVICE) < 0.15
            loss = bert(input_ids=ids.masked_fill(masked, MASK), labels=torch.where(masked, ids, -100))[0]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
            step += 1
            if step == args.steps:
                return


if __name__ == "__main__":
    main()
