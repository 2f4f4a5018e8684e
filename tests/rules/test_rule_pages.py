"""Every code has a page of one shape, and a page says what its rule says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gobrrr.rules import load, pages
from tests.planted.catalogue import BY_NAME, CATALOGUE

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
TESTS = "".join(file.read_text() for file in Path(__file__).parents[1].rglob("test_*.py"))


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


@pytest.mark.parametrize("code", RULES)
def test_each_rule_has_a_test_and_a_program_or_says_where_else_it_was_seen(code):
    assert f'"{code}"' in TESTS
    planted = {code for illness in CATALOGUE for code in illness.codes}
    assert code in planted or section(code, "Seen on")
    named = re.findall(r"tests/planted/(\w+)", section(code, "Seen on"))
    assert all(code in BY_NAME[name].codes for name in named)


def test_a_planted_program_stands_on_the_page_of_the_code_that_names_it_first():
    missing = [one.name for one in CATALOGUE if f"tests/planted/{one.name}" not in page(one.code)]
    assert not missing
