"""Samples computed once: an epoch plain, the first with the cache, later ones; beside Hugging Face's Dataset.map.

    HF_HUB_OFFLINE=1 python -m benchmarks.cache

Needs tokenizers, datasets and Pillow. Texts are Python's own standard library in pieces of 2,000 characters, the
tokenizer is trained on them here, the images are made here. Epochs are in a new random order each, in one process, warm
unless said otherwise; "workers" is a DataLoader with two. Figures are medians of five rounds. Writes
benchmarks/results/cache-DATE.json and .md.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.stamp import stamp
from gobrrr.data import cache
from gobrrr.data.sample_cache.shards import ENTRY
from gobrrr.data.sample_cache.store import Store

TEXTS, IMAGES, ROUNDS, MANY = 4000, 600, 5, 10_000_000
RESULTS = Path(__file__).parent / "results"


class Tokens(Dataset[Any]):
    def __init__(self, texts: list[str], tokenizer: Any) -> None:
        self.texts, self.tokenizer = texts, tokenizer

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor(self.tokenizer.encode(self.texts[index]).ids)}


class Images(Dataset[Any]):
    """640 x 480 JPEG decoded and resized to 224 x 224, uint8."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        with Image.open(self.folder / f"{index}.jpg") as image:
            pixels = np.asarray(image.convert("RGB").resize((224, 224)))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1), index % 10


def tokens() -> Tokens:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    library = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    whole = "".join(path.read_text(errors="replace") for path in library)
    texts = [whole[at : at + 2000] for at in range(0, len(whole), 2000)][:TEXTS]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.train_from_iterator(texts[:500], trainers.BpeTrainer(vocab_size=8000, show_progress=False))
    return Tokens(texts, tokenizer)


def images(folder: Path) -> Images:
    from PIL import Image

    draw = np.random.RandomState(0)
    folder.mkdir()
    for number in range(IMAGES):
        coarse = Image.fromarray(draw.randint(0, 256, (24, 32, 3)).astype(np.uint8))
        coarse.resize((640, 480), Image.Resampling.BICUBIC).save(folder / f"{number}.jpg", quality=90)
    return Images(folder, IMAGES)


def epoch(dataset: Any, seed: int) -> float:
    """Seconds to read each sample once."""
    order = np.random.RandomState(seed).permutation(len(dataset)).tolist()
    began = time.perf_counter()
    for index in order:
        dataset[index]
    return time.perf_counter() - began


def with_workers(dataset: Any) -> float:
    began = time.perf_counter()
    for _ in DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, collate_fn=list):
        pass
    return time.perf_counter() - began


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def dropped(folder: Path) -> None:
    """Out of the system's memory."""
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def of(name: str, dataset: Any, home: Path) -> dict[str, float]:
    """Medians of rounds, so that a drift of the machine meets all rows alike."""
    rows: dict[str, list[float]] = {}
    for number in range(ROUNDS):
        folder = home / f"cache-{name}-{number}"
        began = time.perf_counter()
        cached = cache(dataset, folder)
        opened = time.perf_counter() - began
        mapped = cache(dataset, folder, copy=False)
        shared = cache(dataset, home / f"workers-{name}-{number}", check=False)
        for row, took in (
            ("opening", opened),
            ("plain", epoch(dataset, number)),
            ("first", epoch(cached, number)),
            ("later", epoch(cached, number + 100)),
            ("later, copy=False", epoch(mapped, number + 100)),
            ("plain, workers", with_workers(dataset)),
            ("first, workers", with_workers(shared)),
            ("later, workers", with_workers(shared)),
        ):
            rows.setdefault(row, []).append(took)
        dropped(folder)
        rows.setdefault("later, cold", []).append(epoch(cached, number + 200))
    found = {row: statistics.median(took) for row, took in rows.items()}
    return {"samples": len(dataset), **found, "bytes": bytes_in(folder)}


def of_arrow(dataset: Tokens, home: Path) -> dict[str, float]:
    """Hugging Face's map with its cache on the disk, a sample at a time and in batches of 1,000."""
    import datasets

    datasets.disable_progress_bars()
    found: dict[str, float] = {}
    tokenizer = dataset.tokenizer
    ways: dict[str, tuple[Callable[[Any], Any], bool]] = {
        "": (lambda row: {"input_ids": tokenizer.encode(row["text"]).ids}, False),
        ", batched": (
            lambda rows: {"input_ids": [one.ids for one in tokenizer.encode_batch(rows["text"])]},
            True,
        ),
    }
    for name, (function, batched) in ways.items():
        folder = home / f"arrow{len(name)}"
        folder.mkdir()
        rows = datasets.Dataset.from_dict({"text": dataset.texts})
        took = []
        for number in range(ROUNDS):
            path = str(folder / f"{number}.arrow")
            began = time.perf_counter()
            mapped = rows.map(
                function, batched=batched, remove_columns=["text"], cache_file_name=path, load_from_cache_file=False
            )
            took.append(time.perf_counter() - began)
        found[f"map{name}"] = statistics.median(took)
        found["bytes"] = Path(path).stat().st_size
    mapped = mapped.with_format("torch")
    found["later"] = statistics.median(epoch(mapped, seed) for seed in range(ROUNDS))
    found["later, workers"] = with_workers(mapped)
    return found


def of_ten_million(home: Path) -> dict[str, float]:
    """A store of so many samples: what opening takes, and what the process holds for it."""
    entries = np.zeros(MANY, ENTRY)
    entries["number"] = np.random.RandomState(0).permutation(MANY)
    entries["offset"] = np.arange(MANY) * 512
    entries["size"] = 400
    home.mkdir()
    entries.tofile(home / "part-0.index")
    with (home / "part-0.data").open("wb") as file:
        file.truncate(MANY * 512)
    program = (
        "import resource, sys, time\nfrom pathlib import Path\nfrom gobrrr.data.sample_cache.store import Store\n"
        "used = lambda: int(Path('/proc/self/statm').read_text().split()[1]) * resource.getpagesize()\n"
        f"before, began = used(), time.perf_counter()\nstore = Store(Path(sys.argv[1]), {MANY}, 0)\nstore.look()\n"
        f"took = time.perf_counter() - began\nassert len(store) == {MANY}\nprint(took, used() - before)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(home)], capture_output=True, text=True, check=True)
    seconds, held = done.stdout.split()
    return {"samples": MANY, "opening": float(seconds), "bytes held": float(held)}


def of_puts(home: Path) -> dict[str, float]:
    """Writing alone: 4 KiB payloads, nothing computed."""
    home.mkdir()
    store = Store(home, 20_000, 0)
    payload = bytes(4096)
    began = time.perf_counter()
    for number in range(20_000):
        store.put(number, payload)
    return {"samples": 20_000, "each_us": (time.perf_counter() - began) / 20_000 * 1e6}


def table(found: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        names = ("tokenising", "JPEG")
        print("| seconds per epoch | " + " | ".join(f"{n}, {found[n]['samples']:,} samples" for n in names) + " |")
        print("| --- |" + " --- |" * len(names))
        for row in (key for key in found["JPEG"] if key not in ("samples", "bytes")):
            cells = []
            for name in names:
                one = found[name]
                rate = "" if row == "opening" else f" ({one['samples'] / one[row]:,.0f}/s)"
                cells.append(f"{one[row]:.3f}{rate}")
            print(f"| {row} | " + " | ".join(cells) + " |")
        print("| MiB kept | " + " | ".join(f"{found[n]['bytes'] / 2**20:.1f}" for n in names) + " |")
        arrow, many = found["datasets.map"], found["ten million"]
        samples = found["tokenising"]["samples"]
        print(
            f"\nHugging Face's map on the same texts: {arrow['map']:.3f} s, in batches {arrow['map, batched']:.3f} s;"
        )
        print(f"later epochs with_format('torch') {arrow['later']:.3f} s ({samples / arrow['later']:,.0f}/s), with")
        print(f"workers {arrow['later, workers']:.3f} s; {arrow['bytes'] / 2**20:.1f} MiB.")
        print(f"\nWriting 4 KiB takes {found['writing']['each_us']:.1f} us. A folder of ten million samples opens in")
        print(f"{many['opening']:.2f} s and holds {many['bytes held'] / 2**20:.0f} MiB.")
    return out.getvalue()


def main() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        home = Path(folder).resolve()
        texts = tokens()
        found["tokenising"] = of("tokenising", texts, home)
        found["datasets.map"] = of_arrow(texts, home)
        found["JPEG"] = of("JPEG", images(home / "jpeg"), home)
        found["ten million"] = of_ten_million(home / "many")
        found["writing"] = of_puts(home / "puts")
    told = stamp()
    path = RESULTS / f"cache-{told['date']}"
    path.with_suffix(".json").write_text(json.dumps({"stamp": told, **found}, indent=1) + "\n")
    head = f"{told['cpu']}, {told['cores']} cores (shared), load {told['load']}, torch {told['torch']}\n\n"
    path.with_suffix(".md").write_text(head + table(found))
    print(head + table(found))


if __name__ == "__main__":
    main()
