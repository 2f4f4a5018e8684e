"""Filling in missing spans with T5."""

import argparse

import torch
from corpus import rows
from torch.utils.data import DataLoader
from transformers import T5Config, T5ForConditionalGeneration

MASK = 3


def collate(batch):
    ids = torch.stack(batch)
    start = int(torch.randint(8, 88, ()))
    targets = ids[:, start : start + 32].clone()
    ids = ids.clone()
    ids[:, start : start + 32] = MASK
    return ids, targets


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=32128, d_model=256, d_kv=64, d_ff=1024, num_layers=3, num_heads=4, decoder_start_token_id=0
    )
    model = T5ForConditionalGeneration(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = DataLoader(rows(config.vocab_size, 128), batch_size=8, shuffle=True, collate_fn=collate)
    step = 0
    while step < args.steps:
        for ids, targets in loader:
            loss = model(input_ids=ids, labels=targets).loss
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
