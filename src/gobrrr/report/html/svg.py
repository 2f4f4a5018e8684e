"""Elements of SVG, each text in them escaped: what all charts are drawn with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from markupsafe import Markup

from gobrrr.system.escape import plain

SLIGHT, HUGE = 1e-30, 1e30
"""Beyond any rate or intensity there is: a report may come from anywhere."""
WIDTH = 1000
"""Width of every chart's viewBox; the page scales it."""


class Scale(NamedTuple):
    """A logarithmic scale: powers of ten from `low` to `high` between two coordinates; what lies beyond is at them."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (math.log10(max(value, SLIGHT)) - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * max(0.0, min(1.0, share))


def svg(
    content: Iterable[Markup], height: float, label: str, kind: str, stretched: bool = False,
    data: Mapping[str, float] | None = None,
) -> Markup:  # fmt: skip
    """A chart; `label` is what it is called where nobody sees it. `stretched`: as wide as the page, however wide;
    `data`: figures for the page's script."""
    ratio = Markup(' preserveAspectRatio="none"') if stretched else Markup()
    more = Markup().join(Markup(' data-{}="{}"').format(name, number(value)) for name, value in (data or {}).items())
    return Markup('<svg class="{}" viewBox="0 0 {} {}"{}{} role="img" aria-label="{}">{}</svg>').format(
        kind, WIDTH, number(height), ratio, more, plain(label), Markup().join(content)
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line of a kind."""
    return tag("line", Markup(), {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": kind})


def text(x: float, y: float, words: str, anchor: str) -> Markup:
    """Words at a place."""
    return tag("text", Markup.escape(plain(words)), {"x": x, "y": y, "text-anchor": anchor})


def title(words: str) -> Markup:
    """Return the words that show when the pointer is over the element."""
    return Markup("<title>{}</title>").format(plain(words))


def tag(name: str, content: Markup, attributes: dict[str, float | str]) -> Markup:
    """An element; names are ours, values are escaped."""
    said = Markup().join(
        Markup(' {}="{}"').format(key, value if isinstance(value, str) else number(value))
        for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), said, content)


def number(value: float) -> str:
    """A coordinate: hundredths are below what anybody sees."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
