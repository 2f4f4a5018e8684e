"""Which pictures draft_decoding touches, that all others are the same bit for bit, and what is left behind."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("PIL")

from PIL import Image, ImageFile, ImageOps  # noqa: E402
from PIL.JpegImagePlugin import JpegImageFile  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from gobrrr.remedies.cache import pictures  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402
from gobrrr.trial.race.referee import LiveReferee, Program  # noqa: E402

NAME = "draft_decoding"
FULL, SMALL = (403, 301), (50, 37)


def scene(mode: str = "RGB", size: tuple[int, int] = FULL) -> Any:
    """Smooth, with an edge: what a photograph is to a decoder."""
    rng = np.random.default_rng(0)
    bands = len(Image.new(mode, (1, 1)).getbands())
    coarse = rng.integers(0, 255, (9, 12, bands), dtype=np.uint8).squeeze()
    picture = Image.fromarray(coarse, mode=mode) if bands == 4 else Image.fromarray(coarse)
    return picture.resize(size, Image.Resampling.BICUBIC)


def jpeg(mode: str = "RGB", size: tuple[int, int] = FULL, **how: Any) -> bytes:
    file = io.BytesIO()
    scene(mode, size).save(file, how.pop("format", "JPEG"), quality=90, **how)
    return file.getvalue()


def opened(data: bytes) -> Any:
    return Image.open(io.BytesIO(data))


@contextlib.contextmanager
def applied() -> Iterator[list[str]]:
    said: list[str] = []
    seams = Seams(lambda remedy, detail: said.append(detail))
    install(seams, ["draft_decoding"])
    try:
        yield said
    finally:
        seams.remove()


def apart(a: Any, b: Any) -> tuple[float, int]:
    """Mean and largest difference of two pictures that must be of one size and mode."""
    assert (a.size, a.mode) == (b.size, b.mode)
    gap = np.abs(np.asarray(a).astype(int) - np.asarray(b).astype(int))
    return float(gap.mean()), int(gap.max())


DRAFTED = {
    "resize": lambda data: opened(data).resize(SMALL),
    "convert": lambda data: opened(data).convert("RGB").resize(SMALL, Image.Resampling.BILINEAR),
    "twice": lambda data: opened(data).convert("RGB").convert("RGB").resize(SMALL),
    "to L": lambda data: opened(data).convert("L").resize(SMALL),
    "box": lambda data: opened(data).convert("RGB").resize(SMALL, box=(50.5, 40, 350, 290)),
    "gap": lambda data: opened(data).convert("RGB").resize(SMALL, reducing_gap=2.0),
    "fit": lambda data: ImageOps.fit(opened(data).convert("RGB"), SMALL),
    "keywords": lambda data: opened(data).convert(mode="RGB").resize(size=SMALL, resample=Image.Resampling.LANCZOS),
    "half": lambda data: opened(data).resize((FULL[0] // 2, FULL[1] // 2)),
    "odd": lambda data: opened(data).convert("RGB").resize((50, 100)),
    "reduce": lambda data: opened(data).convert("RGB").reduce(6),
    "reduce by two": lambda data: opened(data).reduce((8, 4)),
    "reduce all": lambda data: opened(data).reduce(2),
}


@pytest.mark.parametrize("name", DRAFTED)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_what_is_made_small_is_decoded_small_and_nearly_the_same(name: str, mode: str) -> None:
    data = jpeg(mode)
    plain = DRAFTED[name](data)
    with applied() as said:
        found = DRAFTED[name](data)
    mean, most = apart(plain, found)
    assert mean < 2 and most < 24 and said
    assert (type(found), found.info, found.format) == (type(plain), plain.info, plain.format)


def thumbnailed(picture: Any, **how: Any) -> Any:
    picture.thumbnail(SMALL, **how)
    return picture


def drafted_by_hand(data: bytes) -> Any:
    picture = opened(data)
    picture.draft("L", (100, 100))
    return picture.convert("RGB").resize((20, 20))


def then_drafted(data: bytes) -> Any:
    picture = opened(data)
    picture.convert("RGB")
    picture.draft("RGB", (100, 100))
    return picture


def read_first(data: bytes) -> Any:
    picture = opened(data).convert("RGB")
    picture.getpixel((0, 0))
    return picture.resize(SMALL)


def closed_first(data: bytes) -> Any:
    with opened(data) as file:
        return file.convert("RGB")


def both(data: bytes) -> Any:
    """The file is read after a picture was made of it."""
    file = opened(data)
    file.convert("RGB").resize(SMALL)
    file.resize(SMALL)
    return file


def written(data: bytes) -> Any:
    picture = opened(data).convert("RGB")
    picture.putpixel((3, 3), (1, 2, 3))
    return picture


def pasted(data: bytes) -> Any:
    sheet = Image.new("RGB", FULL)
    sheet.paste(opened(data).convert("RGB"), (5, 5))
    return sheet


LEFT = {
    "read": lambda data: opened(data),
    "converted": lambda data: opened(data).convert("RGB"),
    "converted to L": lambda data: opened(data).convert("L"),
    "other mode": lambda data: opened(data).convert("HSV").resize(SMALL),
    "other mode later": lambda data: opened(data).convert("RGB").convert("HSV").resize(SMALL),
    "matrix": lambda data: opened(data).convert("RGB").convert("L", (0.2, 0.5, 0.3, 0)),
    "matrix in its mode": lambda data: opened(data).convert("RGB").convert("RGB", (0.5, 0, 0, 0) * 3),
    "larger": lambda data: opened(data).convert("RGB").resize((500, 400)),
    "just not half": lambda data: opened(data).convert("RGB").resize((202, 100)),
    "one side": lambda data: opened(data).convert("RGB").resize((20, 300)),
    "small box": lambda data: opened(data).convert("RGB").resize(SMALL, box=(0, 0, 60, 60)),
    "nearest": lambda data: opened(data).convert("RGB").resize(SMALL, Image.Resampling.NEAREST),
    "odd factor": lambda data: opened(data).convert("RGB").reduce(3),
    "box reduced": lambda data: opened(data).reduce(4, (0, 0, 100, 100)),
    "crop": lambda data: opened(data).convert("RGB").crop((5, 5, 300, 300)).resize(SMALL),
    "rotated": lambda data: opened(data).convert("RGB").rotate(10).resize(SMALL),
    "oriented": lambda data: ImageOps.exif_transpose(opened(data)).convert("RGB").resize(SMALL),
    "oriented later": lambda data: ImageOps.exif_transpose(opened(data).convert("RGB")),
    "thumbnail of a file": lambda data: thumbnailed(opened(data)),
    "thumbnail without a gap": lambda data: thumbnailed(opened(data), reducing_gap=None),
    "drafted by hand": drafted_by_hand,
    "drafted too late": then_drafted,
    "read first": read_first,
    "closed first": closed_first,
    "file read after": both,
    "written into": written,
    "pasted": pasted,
    "copied": lambda data: copy.copy(opened(data).convert("RGB")),
    "deep": lambda data: copy.deepcopy(opened(data).convert("RGB")),
    "pickled": lambda data: pickle.loads(pickle.dumps(opened(data).convert("RGB"))),
    "split": lambda data: opened(data).convert("RGB").split()[1],
    "array": lambda data: Image.fromarray(np.asarray(opened(data).convert("RGB"))),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_read_at_its_full_size_is_the_same_bit_for_bit(name: str) -> None:
    data = jpeg(exif=orientation())
    plain = LEFT[name](data)
    with applied():
        found = LEFT[name](data)
        assert apart(plain, found) == (0, 0)
    assert type(found) is type(plain) and found.info == plain.info and found.getexif() == plain.getexif()


def orientation() -> Any:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


OTHERS = {
    "png": jpeg(format="PNG"),
    "cmyk": jpeg("CMYK"),
    "truncated": jpeg()[:2000],
    "cut and ended": jpeg()[:2000] + b"\xff\xd9",
    "followed by junk": jpeg() + b"junk",
    "padded": jpeg() + b"\0\0",
    "tiny": jpeg(size=(1, 1)),
    "narrow": jpeg(size=(3, 300)),
    "progressive": jpeg(progressive=True),
    "no picture": b"\xff\xd8\xff\xd9",
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("how", ["convert", "resize", "reduce by two", "converted"])
def test_other_files_come_out_or_fail_as_they_did(name: str, how: str) -> None:
    def outcome() -> Any:
        try:
            return (DRAFTED | LEFT)[how](OTHERS[name])
        except Exception as error:
            return f"{type(error).__name__}: {str(error).split(' <')[0]}"

    plain = outcome()
    with applied():
        found = outcome()
        if isinstance(plain, str) or isinstance(found, str):
            assert plain == found
        else:
            touched = name in ("padded", "progressive", "narrow", "cut and ended")
            assert apart(plain, found)[0] < (5 if touched else 1e-9)


def test_a_file_that_ends_too_early_fails_where_it_did() -> None:
    with applied(), pytest.raises(OSError, match="truncated"):
        opened(OTHERS["truncated"]).convert("RGB")


def test_pictures_that_nobody_reads_cost_no_decoding_and_no_open_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg())
    with applied():
        file = Image.open(path)
        handle = file.fp
        picture = file.convert("RGB")
        assert handle.closed and picture._im is None
        assert (picture.size, picture.mode, picture.getbands()) == (FULL, "RGB", ("R", "G", "B"))
        path.unlink()
        assert isinstance(picture, Image.Image) and "PIL.Image.Image" in repr(picture)
    assert np.asarray(picture).shape == (FULL[1], FULL[0], 3) and type(picture) is Image.Image


def test_pictures_equal_each_other_as_before_they_were_read() -> None:
    with applied():
        assert opened(jpeg()).convert("RGB") == opened(jpeg()).convert("RGB")
        assert opened(jpeg()).convert("RGB") != opened(jpeg()).convert("L")


def test_what_the_program_wrote_beside_the_pixels_goes_with_them() -> None:
    with applied():
        picture = opened(jpeg()).convert("RGB")
        picture.info["source"] = "mine"
        assert picture.resize(SMALL).info["source"] == picture.convert("RGB").info["source"] == "mine"


def test_a_worker_runs_the_programs_own_function_too() -> None:
    called: list[int] = []
    with applied():
        pictures.InWorker(pictures.Drafts(None), called.append)(3)
    assert called == [3]


def test_thumbnail_after_convert_is_drafted() -> None:
    plain = thumbnailed(opened(jpeg()).convert("RGB"))
    with applied() as said:
        found = thumbnailed(opened(jpeg()).convert("RGB"))
    assert apart(plain, found)[0] < 2 and said and type(found) is Image.Image


@pytest.mark.parametrize(
    ("size", "scale"), [((50, 37), 8), ((51, 37), 4), ((100, 75), 4), ((101, 75), 2), ((50, 38), 4)]
)
def test_the_scale_is_the_smallest_that_is_not_below_the_target(size: Any, scale: int) -> None:
    with applied() as said:
        opened(jpeg()).convert("RGB").resize(size)
    assert said == [f"the first at 1/{scale} of its size"]


def test_truncated_files_may_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    plain = opened(OTHERS["truncated"]).convert("RGB").resize(SMALL)
    with applied() as said:
        assert apart(plain, opened(OTHERS["truncated"]).convert("RGB").resize(SMALL)) == (0, 0)
    assert said == []


def test_it_leaves_nothing_behind() -> None:
    before = dict(vars(JpegImageFile))
    with applied():
        assert dict(vars(JpegImageFile)) != before
    assert dict(vars(JpegImageFile)) == before
    assert apart(opened(jpeg()).resize(SMALL), LEFT["read"](jpeg()).resize(SMALL)) == (0, 0)


class Pictures(Dataset):
    """Files, made small as they come."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with self.paths[index].open("rb") as file:
            picture = Image.open(file).convert("RGB")
        return torch.from_numpy(np.array(picture.resize(SMALL)))


def initialised(worker: int) -> None:
    torch.manual_seed(worker)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_draft_too_and_tell_the_program(tmp_path: Path, start: str) -> None:
    for each in range(4):
        (tmp_path / f"{each}.jpg").write_bytes(jpeg())
    plain = torch.stack([Pictures(tmp_path)[each] for each in range(4)])
    with applied() as said:
        (batch,) = DataLoader(
            Pictures(tmp_path), batch_size=4, num_workers=1, multiprocessing_context=start, worker_init_fn=initialised
        )
    gap = (plain.int() - batch.int()).abs()
    assert 0 < gap.max() < 24 and gap.float().mean() < 2
    assert said == ["in the loader's workers"]


def test_workers_that_start_after_it_was_taken_away_are_plain(tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(jpeg())
    with applied():
        loader = DataLoader(Pictures(tmp_path), num_workers=1)
    (batch,) = loader
    assert torch.equal(batch[0], Pictures(tmp_path)[0]) and pictures._put_in is None


PROGRAM = """
import io
import numpy as np
import torch
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

TEXT = {text}


def jpeg(number):
    rng = np.random.default_rng(number)
    picture = Image.fromarray(rng.integers(0, 255, (9, 12, 3), dtype=np.uint8)).resize((400, 304), 3)
    for line in range(0, 304, 12) if TEXT else ():
        ImageDraw.Draw(picture).text((0, line), f"a line of small text {{number}} " * 9, fill="white")
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    return file.getvalue()


class Photographs(Dataset):
    files = [jpeg(number) for number in range(24)]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index])).convert("RGB").resize((50, 38))
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 127.5 - 1, index % 5


torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 50 * 38, 5))
optimizer = torch.optim.SGD(net.parameters(), 0.001)
for _ in range(12):
    for pictures, labels in DataLoader(Photographs(), 8, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(pictures), labels).backward()
        optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("text", "consented", "verdict", "said"), [
    (False, (NAME,), "bounded", "data: pixels differ by "),
    (False, (), "wrong", "is another from the same random state"),
    (True, (NAME,), "wrong", "of 255 away from the baseline's on average, 4 is consented to"),
])  # fmt: skip
def test_the_guard_takes_it_for_what_was_consented_to(
    text: bool, consented: tuple[str, ...], verdict: str, said: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text(PROGRAM.format(text=text))
    program = Program((sys.executable, "train.py"), source, 5e6, threads=1, consented=consented)
    referee = LiveReferee(program, tmp_path / "arms")
    try:
        found = referee.guard((NAME,))
    finally:
        referee.close()
    assert found.verdict == verdict and any(said in reason for reason in found.reasons), found
