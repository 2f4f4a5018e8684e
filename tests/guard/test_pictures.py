"""Pixels that may differ because somebody said so: by how much, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from gobrrr.guard import compare, judge
from gobrrr.guard.model.observation import Call, Data, Epoch, Given, Observation, Pixels, Step
from gobrrr.guard.model.verdict import GREEN, VERDICTS, Check
from gobrrr.guard.verdicts import pictures
from gobrrr.guard.verdicts.pictures import Near
from gobrrr.guard.watch.inputs import ALL_PLACES, PLACES, given_of

NEAR = Near(4.0, 0.01, 32.0)
SIDE = 32


def picture(seed: int = 0, num: int = 4) -> np.ndarray[Any, Any]:
    """Some, of bytes, from 40 to 215."""
    return np.random.RandomState(seed).randint(40, 216, (num, 3, SIDE, SIDE)).astype(np.uint8)


def observed(*batches: Given, epoch: Epoch | None = None) -> Observation:
    steps = tuple(Step(calls=(Call("Net#0", True, Data(str(n), given=each)),)) for n, each in enumerate(batches))
    return Observation(steps=steps, drawn=batches, epochs=(epoch,) if epoch else (), complete=True)


def checked(ours: Given, theirs: Given, near: Near = NEAR) -> dict[str, Check]:
    """The checks of a run that was given these."""
    found = pictures.checks(observed(ours), observed(theirs), near, {})
    return {check.name: check for check in found}


def one_away(rows: np.ndarray[Any, Any], levels: float, every: int = 1, row: int | None = None) -> Any:
    """Pictures of which every so manyth pixel is so many levels away, or those of one row."""
    found = rows.astype(np.float64)
    part = found if row is None else found[row : row + 1]
    part.reshape(len(part), 3, -1)[:, :, ::every] += levels
    return found.astype(rows.dtype)


WITHIN = {
    "mean": (one_away(picture(), 4), NEAR), "mean of one": (one_away(picture(), 4, row=2), NEAR),
    "share": (one_away(picture(), 33, 128), Near(4.0, 8 / 1024, 32.0)),
    "not beyond": (one_away(picture(), 32, 8), Near(4.0, 0.0, 32.0)),
}  # fmt: skip
BEYOND = {
    "mean": (one_away(picture(), 5), NEAR, "is 5 of 255 away"),
    "mean of one": (one_away(picture(), 5, row=2), NEAR, "picture 3 of step 1 (Net#0) is 5 of 255 away"),
    "share": (one_away(picture(), 33, 128), Near(4.0, 7.9 / 1024, 32.0), "more than 32 of 255 away"),
    "beyond": (one_away(picture(), 33, 16), Near(4.0, 0.0, 32.0), "6.25% of the pixels are more than 32"),
}  # fmt: skip


@pytest.fixture
def every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a share is what it was made to be."""
    monkeypatch.setattr("gobrrr.guard.watch.inputs.PLACES", SIDE * SIDE)


@pytest.mark.parametrize("name", WITHIN)
def test_just_inside_is_bounded_and_says_how_far(name: str, every_place: None) -> None:
    theirs, near = WITHIN[name]
    found = checked(given_of(picture(), True), given_of(theirs, True), near)
    assert {check.verdict for check in found.values()} == {"bounded"}
    assert "consented to" in found["data"].reason and not found["batches"].reason


@pytest.mark.parametrize("name", BEYOND)
def test_just_outside_is_wrong_and_says_where(name: str, every_place: None) -> None:
    theirs, near, said = BEYOND[name]
    found = checked(given_of(picture(), True), given_of(theirs, True), near)
    assert found["data"].verdict == found["batches"].verdict == "wrong" and said in found["data"].reason


def test_levels_of_normalised_pictures_are_never_larger_than_they_are() -> None:
    """Three channels with a mean and spread of their own; what they range over stands for 255 levels at most."""
    scale = np.array([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1) * 255

    def normalised(rows: np.ndarray[Any, Any]) -> Given:
        return given_of(torch.from_numpy(((rows - 100.0) / scale).astype(np.float32)), True)

    evidence: dict[str, float | None] = {}
    runs = [observed(normalised(rows)) for rows in (picture(), one_away(picture(), 1))]
    list(pictures.checks(*runs, NEAR, evidence))
    assert evidence["pixels_mean_of_255"] == pytest.approx(255 / 175, rel=0.01)
    full = picture().copy()
    full[0, :, 0, 0], full[0, :, 0, 1] = 0, 255
    list(pictures.checks(observed(normalised(full)), observed(normalised(one_away(full, 1))), NEAR, evidence))
    assert 1.0 <= evidence["pixels_mean_of_255"] < 255 / 170  # type: ignore[operator]


def labelled(rows: Any, labels: Any) -> Given:
    return given_of((torch.as_tensor(rows), torch.as_tensor(labels)), True)


OTHERS = {
    "labels": labelled(picture(), [1, 2, 3, 0]), "their dtype": labelled(picture(), [0.0, 1.0, 2.0, 3.0]),
    "one less": labelled(picture(num=3), [0, 1, 2]), "floats": labelled(picture().astype(np.float32), [0, 1, 2, 3]),
    "turned": labelled(picture().transpose(0, 2, 3, 1).copy(), [0, 1, 2, 3]),
    "order": labelled(picture()[::-1].copy(), [0, 1, 2, 3]), "black": labelled(picture() * 0, [0, 1, 2, 3]),
    "doubled": labelled(picture()[[0, 0, 2, 3]], [0, 1, 2, 3]),
    "not finite": labelled(np.full(picture().shape, np.nan, np.float32), [0, 1, 2, 3]),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_all_else_must_be_equal(name: str) -> None:
    ours = labelled(picture().astype(np.float32) if name == "not finite" else picture(), [0, 1, 2, 3])
    assert checked(ours, ours)["batches"].verdict == "exact"
    assert checked(ours, OTHERS[name])["batches"].verdict == "wrong"


def test_what_is_not_plainly_a_picture_is_kept_by_its_digest() -> None:
    tables = [torch.zeros(4, 7, 300), torch.zeros(4, 16), torch.zeros(4, 3, 7, 300), torch.zeros(4, 5, 32, 32)]
    for each in (*tables, torch.zeros(4, 3, 32, 32, dtype=torch.int64), "text", 3):
        assert not given_of(each, True).pixels
    whole = given_of(np.zeros((SIDE, SIDE, 3), np.uint8), False).pixels[0]
    assert whole.kept == (1, SIDE * SIDE, 3)
    assert given_of(picture(), True).pixels[0].kept == (4, PLACES, 3)
    assert given_of(np.zeros((300, 300), np.uint8), False).pixels[0].kept == (1, ALL_PLACES, 1)


def test_of_no_batch_seen_nothing_is_known_of_labels() -> None:
    ours = given_of(picture(), True)
    run = observed(ours)
    unseen = msgspec.structs.replace(run, drawn=(), complete=False)
    found = {check.name: check for check in pictures.checks(unseen, unseen, NEAR, {})}
    assert found["batches"].verdict == "unverified"
    fewer = msgspec.structs.replace(run, drawn=())
    assert next(c for c in pictures.checks(run, fewer, NEAR, {}) if c.name == "batches").verdict == "wrong"
    blind = observed(ours)
    blind = msgspec.structs.replace(blind, steps=(Step(calls=(Call("Net#0", True, Data("0")),)),))
    assert next(iter(pictures.checks(run, blind, NEAR, {}))).verdict == "unverified"


class Photographs(Dataset):
    """Pictures by index, with their labels; `change` is what a remedy does to a sample."""

    def __init__(self, change: Callable[[int, Any, int], Any]) -> None:
        self.change = change

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        rows = torch.from_numpy(picture(index, 1)[0])
        return self.change(index, rows, index % 5)


def plain(index: int, rows: Any, label: int) -> Any:
    return rows.float() / 255, label


def nudged(index: int, rows: Any, label: int) -> Any:
    return plain(index, rows + (torch.arange(SIDE) % 2).to(torch.uint8), label)


def training(change: Callable[[int, Any, int], Any], batch: Callable[[Any], Any] = lambda batch: batch) -> Any:
    def run() -> None:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 4), nn.ReLU(), nn.Linear(4, 5))
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        for _ in range(8):
            for rows, labels in map(batch, DataLoader(Photographs(change), 8, shuffle=True)):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(rows), labels).backward()
                optimizer.step()

    return run


def test_consented_pixels_are_bounded_and_are_refused_without_consent() -> None:
    assert not compare(training(plain), training(nudged), float64=False)
    found = compare(training(plain), training(nudged), float64=False, near=NEAR)
    assert found.verdict == "bounded" and found.reasons[0].startswith("data: pixels differ by ")
    assert found.evidence["pixels_mean_of_255"] == pytest.approx(0.5 * 255 / 175, rel=0.1)


SABOTAGES = {
    "labels shifted": (lambda i, rows, label: nudged(i, rows, (label + 1) % 5), "batches"),
    "one doubled": (lambda i, rows, label: nudged(i, torch.tensor(picture(3 if i == 7 else i, 1)[0]), label), "data"),
    "one black": (lambda i, rows, label: nudged(i, rows * (i != 7), label), "data"),
    "one label": (lambda i, rows, label: nudged(i, rows, 4 if i == 7 else label), "batches"),
}  # fmt: skip


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_is_refused_by_the_check_that_is_for_it(name: str) -> None:
    change, check = SABOTAGES[name]
    found = compare(training(plain), training(change), float64=False, near=NEAR)
    assert found.verdict not in GREEN and any(reason.startswith(f"{check}: ") for reason in found.reasons), found


def test_gradients_that_are_turned_around_are_refused() -> None:
    def turned() -> None:
        backward = torch.Tensor.backward
        torch.Tensor.backward = lambda self, *a, **k: backward(-self)  # type: ignore[method-assign]
        try:
            training(nudged)()
        finally:
            torch.Tensor.backward = backward  # type: ignore[method-assign]

    found = compare(training(plain), turned, float64=False, near=NEAR)
    assert found.verdict not in GREEN and any(reason.startswith("gradients: ") for reason in found.reasons), found


def epoch(items: dict[str, Any], batch: Any) -> Epoch:
    given = {index: given_of(item, False) for index, item in items.items()}
    digests = {index: str(hash(each)) for index, each in given.items()}
    both = given_of(batch, True)
    return Epoch("Photos", 4, num=4, items=digests, given=given, batch=str(hash(both)), batch_given=both)


def test_fetched_samples_are_held_to_the_same_bounds_one_by_one() -> None:
    ours = {"7": (picture()[0], 3)}
    baseline = observed(given_of(picture(), True), epoch=epoch(ours, picture()))
    tried = [
        (one_away(picture(), 4), 3, ""), (one_away(picture(), 5), 3, "sample 7 of Photos is 5 of 255 away"),
        (picture(), 2, "sample 7 of Photos has another label"),
        (one_away(picture(), 33, 64), 3, "sample 7 of Photos has 1.56% of its pixels more than 32"),
    ]  # fmt: skip
    for rows, label, said in tried:
        theirs = observed(given_of(picture(), True), epoch=epoch({"7": (rows[0], label)}, picture()))
        found = judge(baseline, theirs, again=baseline, near=NEAR)
        told = [reason for reason in found.reasons if reason.startswith("epochs: ")]
        assert said in told[0] if said else not told, (said, found)
        strict = judge(baseline, theirs, again=baseline)
        assert "epochs: sample 7 of Photos is another from the same random state" in strict.reasons
    for rows, said in ((one_away(picture(), 4), False), (one_away(picture(), 5), True)):
        theirs = observed(given_of(picture(), True), epoch=epoch(ours, rows))
        found = judge(baseline, theirs, again=baseline, near=NEAR)
        assert any("make another batch" in reason for reason in found.reasons) == said
    assert VERDICTS.index(strict.verdict) > VERDICTS.index("bounded")


def test_a_kept_picture_is_what_it_was() -> None:
    rows = picture()
    pixels: Pixels = given_of(rows.transpose(0, 2, 3, 1), True).pixels[0]
    values = np.frombuffer(pixels.values, np.float32).reshape(pixels.kept)
    assert set(map(tuple, values[0])) <= set(map(tuple, rows[0].reshape(3, -1).T.astype(np.float32)))
