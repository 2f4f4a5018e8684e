"""Padded batches with masks, as mappings, as a tokenizer's own kind, as tuples; each is looked at after its step."""

import random

from fingerprint import fingerprint  # isort: skip

import gc
import weakref
from collections import UserDict

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(4)
random.seed(4)
np.random.seed(4)
lengths = torch.randint(2, 30, (48,)).tolist()
rows = [(torch.arange(32) < length).long() for length in lengths]
data = [{"input_ids": (torch.arange(32) + 1) * row, "attention_mask": row} for row in rows]


class Encoding(UserDict):
    """Counts who asks it for what it holds."""

    asked = 0

    def __getitem__(self, name):
        Encoding.asked += 1
        return super().__getitem__(name)


def collate(samples):
    length = max(int(sample["attention_mask"].sum()) for sample in samples)
    random.random()
    return {name: torch.stack([sample[name][:length] for sample in samples]) for name in samples[0]}


def left(samples):
    batch = torch.utils.data.default_collate(samples)
    return Encoding({name: each.flip(1) for name, each in batch.items()})


def plain(samples):
    return tuple(torch.utils.data.default_collate(samples).values())


model = nn.Embedding(40, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
kept = []
for epoch in range(10):
    for made in (None, collate, left, plain):
        for batch in DataLoader(data, batch_size=8, shuffle=True, collate_fn=made):
            ids = batch[0] if made is plain else batch["input_ids"]
            loss = model(ids).square().sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            fingerprint.losses.append([loss.item(), ids._version, random.random(), torch.rand(()).item()])
            kept.append(weakref.ref(ids))
            del batch, ids, loss
gc.collect()
fingerprint.add("asked", Encoding.asked)
fingerprint.add("alive", sum(ref() is not None for ref in kept))
fingerprint.end(model, optimizer)
