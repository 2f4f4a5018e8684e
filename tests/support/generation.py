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
        self.generation_config = SimpleNamespace(eos_token_id=END, pad_token_id=PAD, do_sample=False)
        self.config = SimpleNamespace(is_encoder_decoder=False)
        self.words, self.head = nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB)

    def forward(self, ids, mask, position_ids=None):
        weight = mask / torch.arange(ids.shape[1], 0, -1)
        return self.head((self.words(ids) * weight[..., None]).sum(1))


def writer() -> Writer:
    """The same model each time."""
    torch.manual_seed(5)
    return Writer().eval()


def prompts(num: int) -> list[torch.Tensor]:
    """Of many lengths."""
    return [torch.randint(3, VOCAB, (1, 3 + n % 5), generator=torch.Generator().manual_seed(n)) for n in range(num)]


def stands_in(monkeypatch) -> None:
    """The library is imported, as far as gobrrr looks."""
    utils = ModuleType("transformers.generation.utils")
    utils.GenerationMixin = GenerationMixin
    monkeypatch.setitem(sys.modules, utils.__name__, utils)
