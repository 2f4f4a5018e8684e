"""Masked language modelling with BERT base on sentences, padded to one length."""

import argparse
import os

import torch
from corpus import sentences
from plain import Language
from torch.utils.data import DataLoader

try:
    from transformers import BertConfig, BertForMaskedLM
except ImportError:
    BertForMaskedLM = None

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
MASK = 3
VOCABULARY, LENGTH, BATCH = (1000, 32, 2) if TINY else (30522, 128, 64)
WIDTH, HEADS, LAYERS = (32, 2, 1) if TINY else (768, 12, 12)


def model():
    if BertForMaskedLM is None:
        return Language(VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, causal=False)
    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, hidden_size=WIDTH,
                        num_attention_heads=HEADS, num_hidden_layers=LAYERS, intermediate_size=4 * WIDTH)  # fmt: skip
    config._attn_implementation = "eager"
    return BertForMaskedLM(config)


def padded(texts):
    length = LENGTH  # <- BRR409
    ids, mask = torch.zeros(2, len(texts), length, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    return {"input_ids": ids, "attention_mask": mask}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    bert = model().to(DEVICE)
    optimizer = torch.optim.AdamW(bert.parameters(), lr=1e-4)
    texts = sentences(VOCABULARY, LENGTH)
    loader = DataLoader(texts, BATCH, shuffle=True, drop_last=True, collate_fn=padded)  # <- BRR409
    step = 0
    while step < args.steps:
        for batch in loader:
            ids, mask = batch["input_ids"].to(DEVICE), batch["attention_mask"].to(DEVICE)
            hidden = (torch.rand(ids.shape, device=DEVICE) < 0.15) & (mask == 1)
            labels = torch.where(hidden, ids, -100)
            loss = bert(input_ids=ids.masked_fill(hidden, MASK), attention_mask=mask, labels=labels)[0]  # <- BRR409
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
