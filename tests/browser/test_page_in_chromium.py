"""The page in a real browser: it fits three widths in light and dark, sorts, prints, and runs nothing foreign."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gobrrr.report.formats import View
from gobrrr.report.html import to_html
from tests.unit import page_samples as samples

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow, pytest.mark.skipif(not BROWSER, reason="no Chromium here: apt-get install chromium"),
]  # fmt: skip
LIGHT, DARK = 1, 0
WIDTHS = (1200, 800, 390)
ASKS = """<script>
for (const head of document.querySelectorAll("table.sortable th button")) head.click();
parent.postMessage(JSON.stringify([document.documentElement.scrollWidth, innerWidth,
  [...document.querySelectorAll("table.sortable th button")].length]), "*");
</script>"""
FRAME = """<iframe src="page.html" style="border:0;width:{}px;height:2400px"></iframe>
<script>addEventListener("message", (told) => {{ document.title = told.data; }});</script>"""
"""A window is never narrower than 500 pixels; a frame is."""


def browse(page: Path, home: Path, *options: str) -> str:
    """What Chromium prints; without sandbox, since tests run as root in containers. Raises where it fails."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
               f"--user-data-dir={home / 'profile'}", *options, page.as_uri()]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def written(folder: Path, content: str) -> Path:
    file = folder / "page.html"
    file.write_bytes(content.encode("utf-8", "replace"))
    return file


def page(word: str = "") -> str:
    report = samples.full()
    return to_html(samples.with_texts(report, word) if word else report, View(steps=samples.TIMES))


def size(png: bytes) -> tuple[int, int]:
    """Width and height out of a PNG's first chunk."""
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def test_light_and_dark_are_drawn_at_three_widths(tmp_path: Path) -> None:
    file = written(tmp_path, page())
    for width in WIDTHS:
        drawn = []
        for scheme in (LIGHT, DARK):
            shot = tmp_path / f"{width}-{scheme}.png"
            browse(file, tmp_path, f"--window-size={width},2400", f"--screenshot={shot}",
                   f"--blink-settings=preferredColorScheme={scheme}")  # fmt: skip
            drawn.append(shot.read_bytes())
            assert size(drawn[-1]) == (width, 2400) and len(drawn[-1]) > 50_000
        assert drawn[0] != drawn[1]


@pytest.mark.parametrize("word", ["", "x" * 3000, "abc " * 800], ids=["plain", "long", "words"])
def test_nothing_is_wider_than_the_window_and_every_column_sorts(tmp_path: Path, word: str) -> None:
    written(tmp_path, re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page(word)) + ASKS)
    for width in WIDTHS:
        frame = tmp_path / "frame.html"
        frame.write_text(FRAME.format(width))
        told = browse(frame, tmp_path, "--window-size=1400,2400", "--virtual-time-budget=3000", "--dump-dom")
        found = re.search(r"<title>(\[.*?\])</title>", told)
        assert found, "our script did not run to its end"
        wide, window, num_heads = json.loads(found[1])
        assert wide <= window == width and num_heads >= 10


def test_our_script_runs_under_its_policy_and_a_foreign_one_does_not(tmp_path: Path) -> None:
    content = page().replace("</main>", "<script>document.title='taken'</script><p style='color:red'>x</p></main>")
    told = browse(written(tmp_path, content), tmp_path, "--dump-dom")
    assert "<title>taken" not in told and '<button type="button">' in told


@pytest.mark.parametrize("word", samples.HOSTILE, ids=range(len(samples.HOSTILE)))
def test_a_hostile_string_does_nothing(tmp_path: Path, word: str) -> None:
    without_policy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page(word))
    told = browse(written(tmp_path, without_policy), tmp_path, "--dump-dom")
    assert "<title>taken" not in told
    assert not re.search(r"<(img|iframe|object|form|base|link|math)\b", told)


def test_it_prints(tmp_path: Path) -> None:
    target = tmp_path / "page.pdf"
    browse(written(tmp_path, page()), tmp_path, f"--print-to-pdf={target}", "--no-pdf-header-footer")
    assert target.read_bytes().startswith(b"%PDF-") and target.stat().st_size > 20_000
