"""A stand-in for transformers' generation, with the seams of the real one that gobrrr looks at: greedy, with a mask."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
from torch import nn

VOCAB, END, PAD = 50, 2, 0
SOURCE = Path(__file__)
"""As transformers/generation/utils.py of a program under test."""


class GenerationMixin:
    """What transformers' own has: generate() with its loop, which asks before each token whether to go on."""

    def generate(self, input_ids=None, attention_mask=None, max_new_tokens=8, do_sample=False,
                 temperature=1.0, **options):  # fmt: skip
        input_ids = input_ids if input_ids is not None else options.get("inputs", torch.full((1, 1), END))
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self._sample(input_ids, mask, input_ids.shape[1] + max_new_tokens, do_sample, temperature)

    @torch.no_grad()
    def _sample(self, input_ids, mask, most, do_sample, temperature):
        unfinished_sequences = torch.ones(len(input_ids), dtype=torch.long)
        over = False
        while self._has_unfinished_sequences(over, False, device=input_ids.device):
            logits = self(input_ids, mask)
            shares = (logits / temperature).softmax(-1)
            drawn = torch.multinomial(shares, 1)[:, 0] if do_sample else logits.argmax(-1)
            tokens = drawn * unfinished_sequences + PAD * (1 - unfinished_sequences)
            input_ids = torch.cat([input_ids, tokens[:, None]], dim=1)
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            unfinished_sequences = unfinished_sequences & (tokens != END).long()
            over = not unfinished_sequences.max() or input_ids.shape[1] >= most
        return input_ids

    def prepare_inputs_for_generation(self):
        """As the library's own: positions come from the mask."""

    prepare_inputs_for_generation.__module__ = "transformers.generation.utils"

    def _has_unfinished_sequences(self, over, synced_gpus, device):
        return not over


class Writer(GenerationMixin, nn.Module):
    """Scores the next token by the sum of all before it, each with its place from the end; padding counts nothing."""

    main_input_name = "input_ids"

    def __init__(self) -> None:
        super().__init__()
        self.generation_config = SimpleNamespace(eos_token_id=END, pad_token_id=PAD, do_sample=False, use_cache=True)
        self.config = SimpleNamespace(is_encoder_decoder=False)
        self.words, self.head = nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB)

    def forward(self, ids, mask, position_ids=None):
        weight = mask / torch.arange(ids.shape[1], 0, -1)
        return self.head((self.words(ids) * weight[..., None]).sum(1))


class DynamicLayer:
    """Keys and values of one layer, as transformers keeps them."""

    def __init__(self, keys):
        self.keys, self.values = keys, keys.clone()


class DynamicCache:
    """Keys and values of all layers."""

    def __init__(self, *layers):
        self.layers = list(layers)


class Remembers(Writer):
    """Words with their places from the mask are its keys; it notes the rows and columns that it reads."""

    layer, cache = DynamicLayer, DynamicCache

    def __init__(self):
        super().__init__()
        self.reads = []

    def forward(self, ids, mask=None, position_ids=None, cache=None, use_cache=False):
        mask = torch.ones_like(ids) if mask is None else mask
        before = cache.layers[0].keys.shape[2] if cache is not None else 0
        self.reads.append(tuple(ids[:, before:].shape))
        keys = (self.words(ids) * mask.cumsum(1)[..., None].sin())[:, None, before:]
        if cache is not None:
            assert torch.equal(cache.layers[0].keys, cache.layers[0].values)
            keys = torch.cat([cache.layers[0].keys, keys], 2)
        logits = self.head((keys[:, 0] * mask[..., None]).sum(1))
        return SimpleNamespace(cache=self.cache(self.layer(keys))) if use_cache else logits

    def generate(self, input_ids, attention_mask=None, cache=None, **options):
        self.forward = lambda ids, mask: type(self).forward(self, ids, mask, cache=cache)
        try:
            return super().generate(input_ids=input_ids, attention_mask=attention_mask, **options)
        finally:
            del self.forward


def writer() -> Writer:
    """The same model each time."""
    torch.manual_seed(5)
    return Writer().eval()


def prompts(num: int) -> list[torch.Tensor]:
    """Of many lengths."""
    return [torch.randint(3, VOCAB, (1, 3 + n % 5), generator=torch.Generator().manual_seed(n)) for n in range(num)]


def remembering(lengths, shared, kind=Remembers):
    """One model each time, and prompts that begin with so many tokens and go on with these lengths."""
    torch.manual_seed(5)
    model, drawn = kind().eval(), torch.Generator().manual_seed(3)
    begins = torch.randint(3, VOCAB, (1, shared), generator=drawn)
    rest = [torch.randint(3, VOCAB, (1, length), generator=drawn) for length in lengths]
    return model, [torch.cat([begins, each], 1) for each in rest]


def stands_in(monkeypatch) -> None:
    """The library is imported, as far as gobrrr looks."""
    utils = ModuleType("transformers.generation.utils")
    utils.GenerationMixin = GenerationMixin
    monkeypatch.setitem(sys.modules, utils.__name__, utils)
