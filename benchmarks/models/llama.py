"""Next-word prediction with a small Llama, in two micro-batches per update."""

import argparse

import torch
from corpus import rows
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

ACCUMULATE = 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32000, hidden_size=384, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = DataLoader(rows(config.vocab_size, 128), batch_size=2, shuffle=True)
    micro = 0
    while micro < args.steps * ACCUMULATE:
        for ids in loader:
            loss = model(input_ids=ids, labels=ids).loss / ACCUMULATE
            loss.backward()
            micro += 1
            if micro % ACCUMULATE == 0:
                optimizer.step()
                optimizer.zero_grad()
            if micro % (20 * ACCUMULATE) == 0:
                print(f"step {micro // ACCUMULATE:4d}  loss {ACCUMULATE * loss.item():.4f}")
            if micro == args.steps * ACCUMULATE:
                return


if __name__ == "__main__":
    main()
