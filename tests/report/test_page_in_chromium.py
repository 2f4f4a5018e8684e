"""The page in a real browser: it fits three widths in light and dark, sorts, prints, and runs nothing foreign."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gobrrr.report.forms import formats
from gobrrr.report.forms.formats import View
from tests.report.test_history_page import KEEP, SAMPLE
from tests.support import page_samples as samples

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
CLICKS = """<script>
window.addEventListener("error", () => { document.title = "a defect of the page's script"; });
for (const button of document.querySelectorAll(".zoom button, table.sortable th button")) button.click();
const over = () => new PointerEvent("pointerover", {bubbles: true});
for (const bar of document.querySelectorAll(".slice")) bar.dispatchEvent(over());
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


NOUNS = {
    "report": (samples.full(), frozenset(("schema",))),
    "receipt": (samples.tuned(), samples.OURS),
    "comparison": (samples.compared(), frozenset(("schema", "codes"))),
    "job": (samples.job(), frozenset(("schema", "error"))),
    "history": (SAMPLE, KEEP),
}
"""What has a page, and which fields' words stay when hostile ones are put into all others."""
EACH = pytest.mark.parametrize("noun", NOUNS)


def page(noun: str = "report", word: str = "") -> str:
    it, but = NOUNS[noun]
    drawn = samples.with_texts(samples.DRAWN, word) if word else samples.DRAWN
    view = View(steps=samples.TIMES, timeline=drawn, gauges=samples.GAUGES, next_command=word or "gobrrr run train.py")
    return formats.render(samples.with_texts(it, word, but) if word else it, "html", view).decode()


def without_policy(content: str) -> str:
    return re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", content)


def size(png: bytes) -> tuple[int, int]:
    """Width and height out of a PNG's first chunk."""
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


@EACH
def test_light_and_dark_are_drawn_at_three_widths(tmp_path: Path, noun: str) -> None:
    file = written(tmp_path, page(noun))
    for width in WIDTHS:
        drawn = []
        for scheme in (LIGHT, DARK):
            shot = tmp_path / f"{width}-{scheme}.png"
            browse(file, tmp_path, f"--window-size={width},2400", f"--screenshot={shot}",
                   f"--blink-settings=preferredColorScheme={scheme}")  # fmt: skip
            drawn.append(shot.read_bytes())
            assert size(drawn[-1]) == (width, 2400) and len(drawn[-1]) > 50_000
        assert drawn[0] != drawn[1]


@EACH
@pytest.mark.parametrize("word", ["", "x" * 3000, "abc " * 800], ids=["plain", "long", "words"])
def test_nothing_is_wider_than_the_window_and_every_column_sorts(tmp_path: Path, noun: str, word: str) -> None:
    written(tmp_path, without_policy(page(noun, word)) + ASKS)
    for width in WIDTHS:
        frame = tmp_path / "frame.html"
        frame.write_text(FRAME.format(width))
        told = browse(frame, tmp_path, "--window-size=1400,2400", "--virtual-time-budget=3000", "--dump-dom")
        found = re.search(r"<title>(\[.*?\])</title>", told)
        assert found, "our script did not run to its end"
        wide, window, num_heads = json.loads(found[1])
        assert wide <= window == width and num_heads >= 9


def test_our_script_runs_under_its_policy_and_a_foreign_one_does_not(tmp_path: Path) -> None:
    content = page().replace("</main>", "<script>document.title='taken'</script><p style='color:red'>x</p></main>")
    told = browse(written(tmp_path, content), tmp_path, "--dump-dom")
    assert "<title>taken" not in told and '<button type="button">' in told


@EACH
@pytest.mark.parametrize("word", samples.HOSTILE, ids=range(len(samples.HOSTILE)))
def test_a_hostile_string_does_nothing(tmp_path: Path, noun: str, word: str) -> None:
    """Read out and written anew by the timeline's own script too."""
    told = browse(written(tmp_path, without_policy(page(noun, word)) + CLICKS), tmp_path, "--dump-dom")
    assert "<title>taken" not in told and "<title>a defect" not in told
    assert not re.search(r"<(img|iframe|object|form|base|link|math)\b", told)


def slices(told: str) -> dict[str, tuple[float, float]]:
    """Left and width of each bar that is seen, by the first words of its title."""
    found = re.findall(r'<rect x="([^"]*)"[^>]*? width="([^"]*)"[^>]*class="(slice k-[^"]*)"><title>([^,<]*)', told)
    return {title: (float(x), float(width)) for x, width, kind, title in found if "hidden" not in kind}


def clicked(folder: Path, *clicks: str) -> str:
    """The page after clicks on buttons of the timeline, under no policy."""
    by_name = "".join(f"[...document.querySelectorAll('.zoom button')].find((b) => b.textContent === '{name}').click();"
                      for name in clicks)  # fmt: skip
    return browse(written(folder, f"{without_policy(page())}<script>{by_name}</script>"), folder, "--dump-dom")


def test_the_timeline_zooms_moves_and_comes_back(tmp_path: Path) -> None:
    whole = slices(clicked(tmp_path))
    near = clicked(tmp_path, "Zoom in")
    assert ">250 us<" in near and ">750 us<" in near  # the middle half of a step of 1 ms
    zoomed = slices(near)
    assert zoomed["linear"] == pytest.approx((150 + 840 * 0.3, 840 * 0.7), abs=1)
    assert whole["linear"] == pytest.approx((150 + 840 * 0.4, 840 * 0.5), abs=1)
    assert "train.py:41 in main" in zoomed and zoomed["train.py:41 in main"] == pytest.approx((150, 840), abs=1)
    late = slices(clicked(tmp_path, "Zoom in", "→"))
    assert "waits for data" in zoomed and "waits for data" not in late
    back = slices(clicked(tmp_path, "Zoom in", "Zoom in", "←", "Whole step"))
    assert back == {title: pytest.approx(place, abs=0.02) for title, place in whole.items()}


def test_dragging_over_a_stretch_zooms_into_it(tmp_path: Path) -> None:
    drag = """<script>
const chart = document.querySelector("svg.timeline"), box = chart.getBoundingClientRect();
const at = (share) => box.left + (150 + 840 * share) * box.width / 1000;
for (const [kind, share] of [["pointerdown", 0.75], ["pointerup", 0.25]])
  chart.dispatchEvent(new PointerEvent(kind, {clientX: at(share), pointerType: "mouse"}));
</script>"""
    told = browse(written(tmp_path, without_policy(page()) + drag), tmp_path, "--dump-dom")
    assert ">250 us<" in told and ">750 us<" in told
    assert slices(told)["linear"] == pytest.approx((150 + 840 * 0.3, 840 * 0.7), abs=2)


def test_pointing_at_a_bar_reads_it_out(tmp_path: Path) -> None:
    told = browse(written(tmp_path, without_policy(page()) + CLICKS), tmp_path, "--dump-dom")
    assert "void k&lt;float&gt;(int), 590 us</output>" in told


@EACH
def test_it_prints(tmp_path: Path, noun: str) -> None:
    target = tmp_path / "page.pdf"
    browse(written(tmp_path, page(noun)), tmp_path, f"--print-to-pdf={target}", "--no-pdf-header-footer")
    assert target.read_bytes().startswith(b"%PDF-") and target.stat().st_size > 20_000
