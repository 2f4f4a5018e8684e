"""Next-word prediction in bfloat16 with GPT-2's vocabulary."""

import argparse
import os

import torch
from corpus import rows
from plain import Language

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
VOCABULARY = 1001 if TINY else 50257
LENGTH, BATCH, WIDTH, HEADS, LAYERS = (32, 2, 32, 2, 1) if TINY else (256, 32, 512, 8, 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Language(VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS).to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, fused=True)
    text = rows(1000, LENGTH).to(DEVICE)
    for step in range(args.steps):
        ids = text[torch.arange(step * BATCH, (step + 1) * BATCH) % len(text)]
        loss = model(input_ids=ids, labels=ids)[0]  # <- BRR109
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
