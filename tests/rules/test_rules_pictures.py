"""BRR401 where Pillow decodes pictures: its share, the draft that it may be, and what it is not told of."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.rules.data.library_calls import LEAST_DECODING
from gobrrr.rules.model.finding import Finding
from tests.support.handmade import MS, Case
from tests.support.rule_lines import GETITEM, LOOP, line, waiting, worker

DECODE, RESIZE, HEADER = "PIL__ImageFile__ImageFile__load", "PIL__Image__Image__resize", "PIL__JpegImagePlugin__f"


def told(**libraries: float) -> Finding:
    case = waiting(40, line(30, GETITEM, LOOP, phase="data", **libraries), facts={"process_load": 2.0})
    return case.raised("BRR401")[0]


def test_decoding_is_named_with_its_share_and_its_draft():
    found = told(**{DECODE: 15.0, RESIZE: 6.0, HEADER: 1.0})
    assert "50.0 % of it is Pillow decoding JPEG" in found.message and "Image.draft" in found.advice
    assert found.remedies == ("one_worker", "loader_workers", "draft_decoding")
    assert found.where == (GETITEM, LOOP)
    assert found.evidence["decoding"].value == pytest.approx(20 * MS)
    assert found.evidence["resizing_share"].value == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("fields", "libraries", "offered"),
    [
        ({"iter_ns": (1, 1)}, {DECODE: 15.0, RESIZE: 6.0, HEADER: 1.0}, 20 * MS),
        ({"iter_ns": (1, 1), "length": 800}, {DECODE: 15.0, RESIZE: 6.0, HEADER: 1.0}, None),
        ({"iter_ns": (1,), "unseen_epochs": 1}, {DECODE: 15.0, RESIZE: 18.0, HEADER: 1.0}, 20 * MS),
        ({"iter_ns": (1,)}, {DECODE: 15.0, RESIZE: 6.0, HEADER: 1.0}, None),
        ({"iter_ns": (1, 1)}, {DECODE: 15.0, RESIZE: 6.0}, None),
        ({"iter_ns": (1, 1)}, {DECODE: 1.0, RESIZE: 6.0, HEADER: 1.0}, None),
    ],
)
def test_jpeg_that_comes_again_may_be_decoded_once(
    fields: dict[str, Any], libraries: dict[str, float], offered: float | None
):
    """In a second epoch; not what may be another format, nor where decoding is little of it."""
    case = waiting(
        40, line(30, GETITEM, LOOP, phase="data", **libraries), facts={"process_load": 2.0}, **{"length": 799, **fields}
    )
    (found,) = case.raised("BRR401")
    assert ("decoded_once" in found.remedies) == ("decoded_once" in found.advice) == (offered is not None)
    if offered is not None:
        assert found.evidence["saved_by_decoding_once"].value == pytest.approx(offered)


def test_what_is_not_resized_is_told_of_arrays_and_has_no_draft():
    found = told(**{DECODE: 15.0, HEADER: 1.0})
    assert "simplejpeg" in found.advice and "draft_decoding" not in found.remedies


def test_other_pictures_are_not_called_jpeg():
    assert "Pillow decoding pictures" in told(**{DECODE: 15.0, HEADER: 1.0, "PIL__PngImagePlugin__f": 1.0}).message
    assert "Pillow decoding pictures" in told(**{DECODE: 15.0}).message


@pytest.mark.parametrize(
    "libraries", [{}, {DECODE: 30 * LEAST_DECODING - 0.1, RESIZE: 20.0}, {"mine__ImageFile__load": 25.0}]
)
def test_where_decoding_is_little_nothing_is_said_of_it(libraries: dict[str, float]):
    found = told(**libraries)
    assert "Pillow" not in found.message + found.advice and "draft_decoding" not in found.remedies
    assert "decoding" not in found.evidence


def test_workers_are_asked_before_the_main_process():
    def case(**fields: Any) -> Case:
        own = line(30, GETITEM, LOOP, phase="data", **{DECODE: 15.0})
        return waiting(60, own, workers=(replace(worker(100.0), **fields),), num_workers=1, facts={"process_load": 0.8})

    assert "Pillow" not in case().raised("BRR401")[0].message
    libraries = (("PIL.ImageFile.ImageFile.load", 70.0 * MS), ("PIL.Image.Image.resize", 5.0 * MS))
    assert "70.0 % of it is Pillow" in case(libraries=libraries).raised("BRR401")[0].message


CROP, FLIP = (
    "torchvision__transforms__transforms__RandomCrop__forward",
    "torchvision__transforms__v2__a__Flip__transform",
)
COMPOSE = "torchvision__transforms__transforms__Compose__forward"


def test_transforms_of_one_line_are_named_apart():
    found = told(**{COMPOSE: 30.0, CROP: 15.0, CROP.replace("forward", "transform"): 12.0, FLIP: 6.0})
    assert found.message.endswith("; of its transforms RandomCrop 50.0 %, Flip 20.0 %")
    assert found.evidence["transform Flip"].value == pytest.approx(0.2)


@pytest.mark.parametrize(
    "few", [{COMPOSE: 30.0, CROP: 15.0}, {CROP: 15.0, FLIP: 1.4}, {CROP: 15.0, "mine__a__Flip__forward": 6.0}]
)
def test_one_transform_is_not_told_apart_from_nothing(few: dict[str, float]):
    assert "transforms" not in told(**few).message
