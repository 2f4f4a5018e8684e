"""Keyed mark that tells what this user's gobrrr has written on this machine from what somebody else has.

The key lies in the user's cache folder, is drawn once and never leaves it. A mark binds bytes to their kind, the user
and the machine's name; whoever changes a byte, or brings a file from elsewhere, has no mark that holds.
"""

from __future__ import annotations

import hmac
import os
import platform
import secrets
from pathlib import Path

from gobrrr.system import files

KEY = "mark.key"
NUM_BYTES = 32  # of the key: as long as what SHA-256 gives, the least that RFC 2104 advises


def of(data: bytes, kind: str) -> str:
    """The mark, in hex digits; empty where no key can be kept."""
    key = _key(make=True)
    return _digest(key, data, kind) if key else ""


def holds(mark: str, data: bytes, kind: str) -> bool:
    """Whether these bytes are marked by this user on this machine."""
    key = _key(make=False)
    return bool(key and mark) and hmac.compare_digest(
        mark.encode("utf-8", "replace"), _digest(key, data, kind).encode()
    )


def _digest(key: bytes, data: bytes, kind: str) -> str:
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    where = f"{kind}\0{user}\0{platform.node()}\0".encode()
    return hmac.new(key, where + data, "sha256").hexdigest()


def _key(make: bool) -> bytes:
    """The key; empty where there is none, where others could have read or written it, and where none can be kept."""
    path = files.cache_folder() / KEY
    try:
        key = files.read_own(path, NUM_BYTES, private=True)
    except FileNotFoundError:
        return _made(path) if make else b""
    except OSError:
        return b""
    return key if len(key) == NUM_BYTES else b""


def _made(path: Path) -> bytes:
    """A new key. Two processes that make one at the same time may each believe their own: one's marks are then lost."""
    key = secrets.token_bytes(NUM_BYTES)
    try:
        files.write_own(path, key)
    except OSError:
        return b""
    return _key(make=False)
