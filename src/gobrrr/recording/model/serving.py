"""Which steps does a serving engine mark in its trace, and what is in each?

vLLM: execute_context_2(512)_generation_30(30), prompts with their tokens and sequences that go on with theirs
(vllm-project/vllm#31193); in detail execute_542_context_2(sq512sk900...)_generation_30(sq30sk9000...), sq being the
tokens computed (#37524); before both execute_new_2_cached_30 (#22496). SGLang: step[EXTEND bs=2 toks=512], step[DECODE
bs=30], step[MIXED bs=3 c=1 g=2 c_sq=5 ... g_sq=2], the part behind bs where asked for (its model_executor names them).
TensorRT-LLM: [Executor] _forward_step 7: 2 ctx reqs, 512 ctx tokens, 30 gen reqs, the tokens since 2026 (an NVTX
range). AMD's ATOM: prefill[bs=2 tok=512 ctx=[256, 256]], decode[bs=30/32 tok=30 p=0 d=30], the second bs being padded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Iteration(NamedTuple):
    """Work of one step of the engine; None where the mark does not say."""

    prompts: int | None
    """None, as `sequences` is, where both are in one step and only their sum is known."""
    prompt_tokens: int | None
    sequences: int | None
    """Sequences that go on, by a token each where nothing is speculated."""
    sequence_tokens: int | None

    @property
    def kind(self) -> str:
        """prefill, decode, or mixed: both in one step (chunked prefill)."""
        if self.prompts is None or (self.prompts and self.sequences):
            return "mixed"
        return "prefill" if self.prompts else "decode"

    @property
    def tokens(self) -> int | None:
        """All tokens that are computed."""
        if self.prompt_tokens is None or self.sequence_tokens is None:
            return None
        return self.prompt_tokens + self.sequence_tokens


Said = dict[str, int]
"""Numbers by name, as name=number stands behind the word of a mark."""


def _extend(said: Said) -> Iteration:
    return Iteration(said["bs"], said.get("toks"), 0, 0)


def _decode(said: Said) -> Iteration:
    return Iteration(0, 0, said["bs"], said.get("g_sq", said["bs"]))


def _mixed(said: Said) -> Iteration:
    return Iteration(said.get("c"), said.get("c_sq"), said.get("g"), said.get("g_sq"))


def _verify(said: Said) -> Iteration:
    return Iteration(0, 0, said["bs"], said.get("g_sq"))


def _atom_prefill(said: Said) -> Iteration:
    return Iteration(said["bs"], said.get("tok"), 0, 0)


def _atom_decode(said: Said) -> Iteration:
    if not said.get("p"):
        return Iteration(0, 0, said["bs"], said.get("tok"))
    total = said.get("tok")  # not told apart: all count as the sequences'
    return Iteration(said["p"], None if total is None else 0, said["bs"] - said["p"], total)


VERIFY = "step[TARGET_VERIFY"
DRAFTED = "step[DECODE"
READERS: dict[str, Callable[[Said], Iteration]] = {
    "step[EXTEND": _extend, "step[DECODE": _decode, "step[MIXED": _mixed, VERIFY: _verify,
    "prefill[bs": _atom_prefill, "decode[bs": _atom_decode,
}  # fmt: skip
_NUMBER = re.compile(r"(?<![\w=])([a-z_]{1,8})=(\d{1,12})(?!\w)")
_TOKENS = re.compile(
    r"execute_(?:\d{1,12}_)?context_(\d{1,12})\((?:sq)?(\d{1,12})\w*\)_generation_(\d{1,12})\((?:sq)?(\d{1,12})\w*\)"
)
_REQUESTS = re.compile(r"execute_new_(\d{1,12})_cached_(\d{1,12})")
_EXECUTOR = re.compile(
    r"\[Executor\] _forward_step(?: \d{1,12})?: (\d{1,12}) ctx reqs(?:, (\d{1,12}) ctx tokens)?, (\d{1,12}) gen reqs"
)
_WORD = re.compile(r"step\[[A-Z_]+(?= bs=\d)|(?:prefill|decode)\[bs(?==\d)")


def iteration(name: str) -> Iteration | None:
    """Return the step that a mark tells of; None where the name is no mark."""
    if found := _TOKENS.fullmatch(name):
        return Iteration(*map(int, found.groups()))
    if found := _REQUESTS.fullmatch(name):
        return Iteration(int(found[1]), None, int(found[2]), None)
    if found := _EXECUTOR.fullmatch(name):
        prompts, tokens, sequences = found.groups()
        return Iteration(int(prompts), int(tokens) if tokens else None, int(sequences), None)
    word = _WORD.match(name)
    read = READERS.get(word[0]) if word and name.endswith("]") else None
    said = {key: int(number) for key, number in _NUMBER.findall(name)}
    return read(said) if read and "bs" in said and said["bs"] >= said.get("p", 0) else None


def iterations(names: Sequence[str]) -> dict[int, Iteration]:
    """Return the step of each name that is a mark, by its number. Where sequences are verified, the steps called decode
    are a draft model's: parts of the engine's step, none themselves."""
    said = {number: found for number, name in enumerate(names) if (found := iteration(name))}
    if not any(names[number].startswith(VERIFY) for number in said):
        return said
    return {number: found for number, found in said.items() if not names[number].startswith(DRAFTED)}
