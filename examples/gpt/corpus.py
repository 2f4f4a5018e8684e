"""Text to train on, without a download: the Python sources of the NumPy that is installed, cut into documents."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy

NUM_WORDS = 2000
LONGEST = 16


def documents(num_documents: int, num_characters: int) -> list[str]:
    """The first `num_documents` pieces of `num_characters` characters of NumPy's array functions and their docs."""
    root = Path(numpy.__file__).parent
    sources = sorted(path for part in ("lib", "linalg", "ma", "polynomial") for path in (root / part).glob("*.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    text = text.encode("ascii", "ignore").decode()
    starts = range(0, len(text) - num_characters, num_characters)
    return [text[start : start + num_characters] for start in starts][:num_documents]


class Tokenizer:
    """The most frequent words and every single character; a text is read greedily, the longest word first."""

    def __init__(self, texts: list[str]) -> None:
        words = Counter(word for text in texts for word in re.findall(r" ?\w+| +|\n *", text) if len(word) <= LONGEST)
        frequent = [word for word, _ in words.most_common(NUM_WORDS)]
        self.ids = {word: number for number, word in enumerate(dict.fromkeys([*map(chr, range(128)), *frequent]))}

    def __len__(self) -> int:
        return len(self.ids)

    def encode(self, text: str) -> list[int]:
        """Token numbers of an ASCII text."""
        ids, at = [], 0
        while at < len(text):
            for length in range(LONGEST, 0, -1):
                word = text[at : at + length]
                if word in self.ids:
                    ids.append(self.ids[word])
                    at += len(word)
                    break
        return ids
