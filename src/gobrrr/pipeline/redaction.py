"""Mask what users want to keep to themselves, in all that is stored and shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from gobrrr.system.secrets import MASK, masked

T = TypeVar("T")
Patterns = Sequence[re.Pattern[str]]


def shown(command: Sequence[str], patterns: Patterns = ()) -> list[str]:
    """A command line as it may be stored and shown."""
    return [_without(word, patterns) for word in masked(command)]


def masker(patterns: Patterns) -> Callable[[str], str]:
    """Return a function that masks the patterns in a text: for source, which is read beside the report."""
    return partial(_without, patterns=patterns)


def redacted(noun: T, patterns: Patterns) -> T:
    """A report, receipt or recipe with what the patterns find masked in every text but its schema."""
    import msgspec

    if not patterns:
        return noun
    return msgspec.convert(_mapped(msgspec.to_builtins(noun), patterns), type(noun))


_OURS = frozenset(("schema", "kept", "remedies", "onto", "purpose", "verdict", "code", "codes"))
"""Fields whose words are gobrrr's own, and are read back."""


def _mapped(value: Any, patterns: Patterns, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _mapped(each, patterns, name) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(each, patterns, key) for each in value]
    return _without(value, patterns) if isinstance(value, str) and key not in _OURS else value


def _without(text: str, patterns: Patterns) -> str:
    for pattern in patterns:
        text = pattern.sub(lambda _: MASK, text)
    return text
