"""The pages that people read: short enough, in the site, and with words in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "decisions" not in page.parts)
ARCHITECTURE = DOCS / "architecture.md"
"""Its table has long rows, and its sentences the full names of functions."""
WORDS = 2_400
"""Of a page: some ten minutes of reading."""


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1_150
    assert [line for line in text.splitlines() if len(line) > 120] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_is_read_at_one_sitting_and_stands_in_the_site(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= WORDS
    assert f" {page.relative_to(DOCS)}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != ARCHITECTURE], ids=lambda page: str(page.relative_to(DOCS))
)
def test_prose_has_lines_of_120_characters(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    prose = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
    assert [line for line in prose if len(line) > 120] == []


def test_the_glossary_is_in_order_and_has_each_word_once() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| (?!term )([\w ]+) \| [^|]+ \| [^|]+ \|$", text.partition("\n## ")[0], re.M)
    assert len(terms) > 20
    assert terms == sorted(set(terms), key=str.lower)
