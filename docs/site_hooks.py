"""What mkdocs does not do by itself: pages that live beside the code join the site, and links out of docs/ stay right.

mkdocs.yml names this file; `make docs` runs it. Nothing is copied: each page is read where it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Folder in the site: pattern of the pages below the repository.
FOLDERS = {
    "find-out/rules": "src/gobrrr/rules/**/BRR*.md",
    "fix/remedies": "src/gobrrr/remedies/**/*.md",
    "trust/results": "benchmarks/results/**/*.md",
}
# Name in the site: one page.
PAGES = {"readme.md": "README.md", "extend/contributing.md": "CONTRIBUTING.md", "extend/changes.md": "CHANGELOG.md"}
LINK = re.compile(r"(?P<open>!?\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\()(?P<target>[^)#:\s]+)(?P<rest>(?:#[^)\s]*)?\))")
NAMED = re.compile(r"^(?P<name>\[[^\]]+\]: )(?P<target>[^\s#:]+)$", re.M)
FENCED = re.compile(r"(^ *```.*?^ *```)", re.M | re.S)
LIST_AFTER_TEXT = re.compile(r"^(?!\d+\. )([^\s\-*|#>`].*)\n(?=- )", re.M)
LIST = re.compile(r"<!-- list: (?P<kind>rules|idioms|remedies) -->")


def outside() -> dict[str, Path]:
    """Name in the site of each page that does not live in docs/, and its path."""
    found = {name: ROOT / path for name, path in PAGES.items()}
    for folder, pattern in FOLDERS.items():
        found |= {f"{folder}/{path.name}": path for path in sorted(ROOT.glob(pattern))}
    for path in sorted((ROOT / "examples").rglob("README.md")):
        found[f"examples/{'-'.join(path.parent.relative_to(ROOT / 'examples').parts) or 'index'}.md"] = path
    return found


def on_files(files: Any, config: Any) -> Any:
    """Add them to the site."""
    for name, path in outside().items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page with its lists written out, and with links that hold in the site."""
    names = {path: name for name, path in outside().items()}
    here = Path(page.file.abs_src_path)

    def target_of(target: str) -> str | None:
        path = Path(os.path.normpath(here.parent / target))
        name = names.get(path)
        if name is None and path.is_relative_to(DOCS) and path.is_file():
            name = path.relative_to(DOCS).as_posix()
        return name and os.path.relpath(name, Path(page.file.src_uri).parent)

    def link(found: re.Match[str]) -> str:
        target = target_of(found["target"])
        return f"{found['open']}{target}{found['rest']}" if target else found["text"]

    def named(found: re.Match[str]) -> str:
        return f"{found['name']}{target_of(found['target']) or found['target']}"

    # Where GitHub begins a list right below a sentence, mkdocs wants an empty line.
    parts = [part if i % 2 else LIST_AFTER_TEXT.sub(r"\1\n\n", part) for i, part in enumerate(FENCED.split(markdown))]
    # Lists bring links of the site, so they are written last.
    markdown = NAMED.sub(named, LINK.sub(link, "".join(parts)))
    return LIST.sub(lambda found: "\n".join(_rows(found["kind"], page.file.src_uri)), markdown)


def _rows(kind: str, where: str) -> Iterator[str]:
    if kind == "idioms":
        from gobrrr.rules.idioms.table import listed

        yield from ("## All idioms", "", listed())
        return
    folder = next(each for each in FOLDERS if each.endswith(kind))
    yield from (f"## All {kind}", "", "| name | |", "|---|---|")
    for name, path in outside().items():
        if name.startswith(f"{folder}/"):
            title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
            says = re.sub(r"^[^ :]+:? ", "", title)
            yield f"| [{path.stem}]({os.path.relpath(name, Path(where).parent)}) | {says} |"
