"""36: decoding a JPEG whole, or at the size that is wanted."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found, Row

SMALL = (224, 224)


def measure(bench: Bench) -> Found:
    """A picture of 1600 x 1200 (smooth, with grain) decoded and resized: whole, and by PIL's draft mode."""
    Image = import_module("PIL.Image")  # where it is installed
    data = _picture(Image, bench.size(1600, 64), bench.size(1200, 48))

    def opened(draft: bool) -> Any:
        image = Image.open(io.BytesIO(data))
        if draft:
            image.draft("RGB", SMALL)
        return image.convert("RGB")

    factor = bench.pair(lambda: opened(False).resize(SMALL), lambda: opened(True).resize(SMALL), of=3)
    whole, drafted = (bench.time(lambda way=way: opened(way), of=3) for way in (False, True))  # type: ignore[misc]
    return Found(factor, None, (Row("decoded whole", whole, unit="ns"), Row("decoded by draft", drafted, unit="ns")))


def _picture(image: Any, width: int, height: int) -> bytes:
    draw = np.random.RandomState(0)
    coarse = draw.randint(0, 255, (height // 16, width // 16, 3), np.uint8)
    smooth = np.asarray(image.fromarray(coarse).resize((width, height)), np.int16)
    noisy = np.clip(smooth + draw.randint(-8, 8, smooth.shape), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    image.fromarray(noisy).save(file, "JPEG", quality=90)
    return file.getvalue()


EXPERIMENT = Experiment(
    number=36, chapter="data", title="A JPEG decoded whole, or at the size that is wanted",
    claim="Large pictures that are resized right after need not be decoded in full: the format can give a half, a "
    "quarter or an eighth for a fraction of the time.",
    source="course EDLS, week 2, decoders of JPEG; libjpeg's scaled decoding",
    published="313 to 738 pictures per second by decoder; 21.0 against 5.0 ms for 1600 x 1200 by draft (measured "
    "for this project)",
    factor="time to decode and resize to 224 x 224, whole over draft, 1600 x 1200",
    reproduced=(2.0, 8.0),
    why="JPEG keeps blocks of 8 x 8 as frequencies. A half-size picture needs the lower half of them, so most of "
    "the inverse transform and all work on pixels that are thrown away falls away. The picture is slightly another "
    "one than by decoding and resizing, so it is no exact remedy. Decoders differ more by their use of vector units "
    "than by their names.",
    measure=measure, needs=("pillow",), seconds=10.0,
)  # fmt: skip
