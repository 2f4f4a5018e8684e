"""Masked language modelling with BERT on sentences of different length."""

import argparse

import torch
from corpus import sentences
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForMaskedLM

MASK, VOCABULARY = 3, 30522


def collate(batch):
    ids = pad_sequence(batch, batch_first=True)
    ids = torch.nn.functional.pad(ids, (0, 128 - ids.shape[1]))
    attention = (ids != 0).long()
    masked = (torch.rand(ids.shape) < 0.15) & (ids != 0)
    labels = torch.where(masked, ids, -100)
    return ids.masked_fill(masked, MASK), attention, labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    model = BertForMaskedLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(sentences(VOCABULARY, 128), batch_size=8, shuffle=True, collate_fn=collate)
    step = 0
    while step < args.steps:
        for ids, attention, labels in loader:
            loss = model(input_ids=ids, attention_mask=attention, labels=labels).loss
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
