"""Which steps does a serving engine mark in its trace, and what is in each?

vLLM annotates every step of its engine: execute_context_2(512)_generation_30(30), prompts with their tokens and
sequences that go on with theirs (vllm-project/vllm#31193); in detail execute_542_context_2(sq512sk900...)_generation_
30(sq30sk9000...), sq being the tokens computed (#37524); before both execute_new_2_cached_30 (#22496).
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKENS = re.compile(
    r"execute_(?:\d{1,12}_)?context_(\d{1,12})\((?:sq)?(\d{1,12})\w*\)_generation_(\d{1,12})\((?:sq)?(\d{1,12})\w*\)"
)
_REQUESTS = re.compile(r"execute_new_(\d{1,12})_cached_(\d{1,12})")


class Iteration(NamedTuple):
    """What one step of the engine computes; tokens are None where the mark does not say."""

    prompts: int
    prompt_tokens: int | None
    sequences: int
    """That go on, by a token each where nothing is speculated."""
    sequence_tokens: int | None

    @property
    def kind(self) -> str:
        """prefill, decode, or mixed: both in one step (chunked prefill)."""
        return "mixed" if self.prompts and self.sequences else "prefill" if self.prompts else "decode"

    @property
    def tokens(self) -> int | None:
        """All that are computed."""
        if self.prompt_tokens is None or self.sequence_tokens is None:
            return None
        return self.prompt_tokens + self.sequence_tokens


def iteration(name: str) -> Iteration | None:
    """What a mark says; None where it is none."""
    if found := _TOKENS.fullmatch(name):
        prompts, prompt_tokens, sequences, tokens = map(int, found.groups())
        return Iteration(prompts, prompt_tokens, sequences, tokens)
    if found := _REQUESTS.fullmatch(name):
        return Iteration(int(found[1]), None, int(found[2]), None)
    return None
