"""Every code has a page of one shape, and a page says what its rule says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gobrrr.rules import load, pages

PLANTED = Path(__file__).parents[1] / "planted"
SECTIONS = (
    "What it means",
    "How it is detected",
    "Why it is slow",
    "How to fix",
    "When this is wrong",
    "Saving",
    "Seen on",
    "References",
)
RULES = load()


def page(code: str) -> str:
    return pages.text_of(code)


def section(code: str, title: str) -> str:
    return page(code).split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0].strip()


@pytest.mark.parametrize("code", RULES)
def test_page_has_the_sections_in_order(code):
    text = page(code)
    assert text.startswith(f"# {code} {RULES[code].name}\n")
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == SECTIONS
    assert all(section(code, title) for title in SECTIONS)


@pytest.mark.parametrize("code", RULES)
def test_page_names_the_rules_signals_and_remedies(code):
    detected, fix = section(code, "How it is detected"), section(code, "How to fix")
    assert all(signal in detected for signal in RULES[code].needs)
    assert all(remedy in fix for remedy in RULES[code].remedies)


@pytest.mark.parametrize("code", RULES)
def test_page_names_planted_programs_that_exist(code):
    named = re.findall(r"tests/planted/(\w+)", page(code))
    assert all((PLANTED / name).is_dir() for name in named)


def test_no_page_without_a_rule():
    assert set(pages.codes()) <= set(load())
