"""The page of each rule code: Markdown that lies beside the rule, in the folder of its band."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
_CODE = re.compile(r"BRR\d{3}", re.ASCII)


def codes() -> list[str]:
    """Return every code that has a page, in order."""
    return sorted(page.stem for page in FOLDER.glob("*/BRR*.md"))


def text_of(code: str) -> str:
    """Return the page's Markdown, "" where there is none. `code` may be a stranger's: only BRR and digits is a name."""
    found = FOLDER.glob(f"*/{code}.md") if _CODE.fullmatch(code) else ()
    return "".join(page.read_text(encoding="utf-8") for page in found)
