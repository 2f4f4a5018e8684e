"""Real text without a download: the manual that ships with Python, as words and their numbers."""

from __future__ import annotations

import re
from pydoc_data.topics import topics

import torch


def words() -> list[str]:
    """The manual's words and punctuation marks, in order."""
    return re.findall(r"\w+|[^\w\s]", "\n".join(topics.values()))


def tokens(vocabulary: int) -> torch.Tensor:
    """All words as numbers from 4 on, the most frequent first; 0 to 3 are left to padding and marks."""
    text = words()
    counts: dict[str, int] = {}
    for word in text:
        counts[word] = counts.get(word, 0) + 1
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    numbers = {word: 4 + rank for rank, word in enumerate(ranked)}
    return torch.tensor([min(numbers[word], vocabulary - 1) for word in text])


def rows(vocabulary: int, length: int) -> torch.Tensor:
    """[num, length] int64: the text cut into rows."""
    text = tokens(vocabulary)
    return text[: len(text) // length * length].view(-1, length)


def sentences(vocabulary: int, longest: int) -> list[torch.Tensor]:
    """Pieces of the text between full stops, 4 to `longest` words each."""
    text, stop = tokens(vocabulary), 4 + _rank_of_stop()
    ends = (text == stop).nonzero().flatten().tolist()
    pieces = [text[a + 1 : b + 1][:longest] for a, b in zip([-1, *ends[:-1]], ends, strict=True)]
    return [piece for piece in pieces if len(piece) >= 4]


def _rank_of_stop() -> int:
    text = words()
    counts: dict[str, int] = {}
    for word in text:
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts, key=lambda word: (-counts[word], word)).index(".")
