"""GPT-2 small and BERT base in torch alone, attention by hand as in 2019, for machines without transformers.

    (loss, logits) = model(input_ids=ids, labels=labels)

ids and labels [batch, length] int64, labels -100 where nothing is asked, `attention_mask` 0 where padding stands;
`causal` predicts the next word.
"""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(0.1)

    def attend(self, x, mask):
        batch, length, width = x.shape
        query, key, value = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        if self.causal:
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None] == 0, float("-inf"))
        mixed = self.dropout(scores.softmax(-1)) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x, mask):
        x = x + self.dropout(self.attend(self.norms[0](x), mask))
        return x + self.dropout(self.mlp(self.norms[1](x)))


class Language(nn.Module):
    def __init__(self, vocabulary, length, width=768, heads=12, layers=12, causal=True):
        super().__init__()
        self.causal = causal
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, input_ids, labels, attention_mask=None):
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.blocks:
            x = block(x, attention_mask)
        logits = self.head(self.norm(x))
        asked, told = (labels[:, 1:], logits[:, :-1]) if self.causal else (labels, logits)
        return nn.functional.cross_entropy(told.flatten(0, 1), asked.flatten(), ignore_index=-100), logits
