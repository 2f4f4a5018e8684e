"""Pictures are Pillow's bit for bit, each decoded once, and nobody's writing reaches another's."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("PIL")

from PIL import Image, ImageFile, ImageOps  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from gobrrr.remedies.cache import cache  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402

USES: dict[str, Callable[[Any], Any]] = {
    "convert": lambda file: file.convert("RGB"),
    "convert to grey": lambda file: file.convert("L"),
    "convert and resize": lambda file: file.convert("RGB").resize((50, 37), Image.Resampling.BILINEAR),
    "resize": lambda file: file.resize((50, 37)),
    "resize a part": lambda file: file.convert("RGB").resize((20, 20), box=(10, 20, 110, 120)),
    "reduce": lambda file: file.convert("RGB").reduce(3),
    "crop": lambda file: file.convert("RGB").crop((5, 6, 90, 80)),
    "twice": lambda file: file.convert("RGB").convert("RGB").resize((40, 40)).resize((20, 20)),
    "larger": lambda file: file.convert("RGB").resize((400, 300)),
    "read": lambda file: Image.fromarray(np.asarray(file)),
    "thumbnail": lambda file: (file.thumbnail((60, 60)), file)[1],
}


def jpeg(seed: int = 0, mode: str = "RGB", **how: Any) -> bytes:
    draw = np.random.default_rng(seed)
    shape = (9, 12, 3) if mode == "RGB" else (9, 12)
    coarse = Image.fromarray(draw.integers(0, 255, shape, dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((203, 151), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90, **how)
    return file.getvalue()


class Applied:
    """What the remedy said, what it decoded, and what it put aside."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.why: list[str] = []
        self.asides: list[int] = []
        self.decoded = 0


@contextlib.contextmanager
def applied(monkeypatch: pytest.MonkeyPatch) -> Iterator[Applied]:
    found = Applied()

    plain = ImageFile.ImageFile.load

    def load(file: Any) -> Any:
        found.decoded += bool(file.tile)
        return plain(file)

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    seams = Seams(
        lambda _, detail: found.said.append(detail), declined=lambda _, why: found.why.append(why),
        aside=found.asides.append,
    )  # fmt: skip
    install(seams, ["decoded_once"])
    try:
        yield found
    finally:
        seams.remove()


def shown(picture: Any) -> Any:
    return picture.mode, picture.size, picture.tobytes(), picture.info


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("use", USES)
def test_pixels_size_mode_and_info_are_those_of_pillow(use: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = jpeg(mode=mode, comment=b"a word", dpi=(72, 72))
    plain = shown(USES[use](Image.open(io.BytesIO(data))))
    with applied(monkeypatch) as found:
        again = [shown(USES[use](Image.open(io.BytesIO(data)))) for _ in range(3)]
    assert again == [plain] * 3
    assert found.decoded == (3 if use == "thumbnail" else 1), "a draft is Pillow's own"
    assert len(found.said) == len(found.asides) == (use != "thumbnail")


def test_another_file_of_the_same_name_is_another_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "picture.jpg"
    small = [shown(Image.open(io.BytesIO(jpeg(seed))).convert("RGB").resize((50, 37))) for seed in (0, 1)]
    with applied(monkeypatch) as found:
        for seed in (0, 1, 0):
            path.write_bytes(jpeg(seed))
            kept = shown(Image.open(path).convert("RGB").resize((50, 37)))
            assert kept == small[seed]
    assert found.decoded == 2


def test_what_is_written_into_a_picture_is_in_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    data = jpeg()
    with applied(monkeypatch):
        first = Image.open(io.BytesIO(data)).convert("RGB")
        plain = first.tobytes()
        first.paste((0, 0, 0), (0, 0, 50, 50))
        assert Image.open(io.BytesIO(data)).convert("RGB").tobytes() == plain != first.tobytes()


def test_a_full_memory_keeps_what_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "memory_room", lambda: 3.0 * 203 * 151 + 1)
    with applied(monkeypatch) as found:
        for _ in range(3):
            for seed in (0, 1):
                assert Image.open(io.BytesIO(jpeg(seed))).convert("RGB").resize((50, 37)).size == (50, 37)
    assert found.decoded == 1 + 3 and len(found.asides) == 1, "and what is never kept is part of every step"


def test_pictures_that_are_others_each_time_are_no_files_that_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of another encoding: of twice as many as there are samples nothing more is kept, or put aside."""
    with applied(monkeypatch) as found:
        DataLoader([0, 1, 2])  # type: ignore[arg-type]
        for seed in range(10):
            Image.open(io.BytesIO(jpeg(seed))).convert("RGB").resize((20, 20))
    assert found.decoded == 10 and len(found.asides) == 6


def test_a_broken_file_is_found_where_pillow_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(jpeg())
    at = data.index(b"\xff\xc4") + 5
    data[at : at + 16] = b"\xff" * 16  # a Huffman table with too many codes; the file ends as it should

    def opened() -> str:
        with pytest.raises(OSError) as raised:
            Image.open(io.BytesIO(bytes(data))).convert("RGB")
        return str(raised.value)

    plain = opened()
    with applied(monkeypatch) as found:
        assert opened() == plain
    assert not found.asides and not found.said


class Mirrored(Dataset):
    """As people write it: decoded, made small, mirrored by a draw."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        picture = Image.open(self.paths[index]).convert("RGB").resize((40, 30))
        if torch.rand(1).item() < 0.5:
            picture = ImageOps.mirror(picture)
        return torch.from_numpy(np.array(picture)), index


def epochs(data: Any, **how: Any) -> list[Any]:
    torch.manual_seed(0)
    return [batch for _ in range(3) for batch in DataLoader(data, batch_size=3, shuffle=True, **how)]


def test_batches_of_three_epochs_are_the_same_with_their_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(7):
        (tmp_path / f"{seed}.jpg").write_bytes(jpeg(seed))
    plain = epochs(Mirrored(tmp_path))
    with applied(monkeypatch) as found:
        kept = epochs(Mirrored(tmp_path))
    assert len(plain) == 9 and all(
        torch.equal(a, b) for one, other in zip(plain, kept, strict=True) for a, b in zip(one, other, strict=True)
    )
    assert found.decoded == 7


def test_workers_decode_as_ever_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        (tmp_path / f"{seed}.jpg").write_bytes(jpeg(seed))
    plain = epochs(Mirrored(tmp_path), num_workers=1)
    with applied(monkeypatch) as found:
        kept = epochs(Mirrored(tmp_path), num_workers=1)
    assert all(torch.equal(one[0], other[0]) for one, other in zip(plain, kept, strict=True))
    assert found.why[0] == "the loader has workers, each with a memory of its own" and not found.said


def test_it_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    data = jpeg()
    with applied(monkeypatch):
        opened = Image.open(io.BytesIO(data))
    assert opened.convert("RGB").tobytes() == Image.open(io.BytesIO(data)).convert("RGB").tobytes()
    assert "load" not in vars(type(opened))
