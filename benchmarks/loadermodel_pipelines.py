"""The pipelines that benchmarks/loadermodel.py predicts and measures: made of sleeping and computing, and real
ones. Each is a function without arguments that gives a Dataset, what a step does with a batch, and the loader's other
arguments."""

from __future__ import annotations

import gzip
import io
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

LENGTH = 100_000
"""Of a data set: more batches than any measurement takes."""


class Made(NamedTuple):
    """A loop's parts."""

    dataset: Any
    compute: Callable[[Any], Any]
    loader: dict[str, Any]
    threads: int


class Synthetic(Dataset[torch.Tensor]):
    """Samples that take so many ms asleep and of CPU time."""

    def __init__(self, blocked_ms: float, cpu_ms: float) -> None:
        self.blocked, self.cpu = blocked_ms / 1e3, cpu_ms / 1e3

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.blocked:
            time.sleep(self.blocked)
        spin(self.cpu)
        return torch.zeros(16)


def spin(seconds: float) -> None:
    """CPU time of this thread, not wall: a core that is shared makes it last longer."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def products(ms: float) -> Callable[[Any], None]:
    """Matrix products that take about so long on all threads: counted once, alone."""
    left, right = torch.randn(384, 384), torch.randn(384, 384)
    for _ in range(20):
        left @ right
    start = time.perf_counter()
    for _ in range(50):
        left @ right
    times = max(1, round(ms / 1e3 / ((time.perf_counter() - start) / 50)))

    def work(batch: Any) -> None:
        for _ in range(times):
            left @ right

    return work


COMPUTE: dict[str, tuple[int, Callable[[], Callable[[Any], Any]]]] = {
    "sleeps 10": (1, lambda: lambda batch: time.sleep(0.010)),
    "sleeps 40": (1, lambda: lambda batch: time.sleep(0.040)),
    "Python 12": (1, lambda: lambda batch: spin(0.012)),
    "ops on one thread 25": (1, partial(products, 25)),
    "ops on all threads 8": (0, partial(products, 8)),
    "ops on all threads 25": (0, partial(products, 25)),
}
"""What a step does, with the ops' threads: 0 is all cores."""
LOADING = {"blocks 32": (4.0, 0.0), "computes 32": (0.0, 4.0), "16 of each": (2.0, 2.0), "blocks 64": (8.0, 0.0),
           "computes 12": (0.0, 1.5), "blocks 8, computes 4": (1.0, 0.5)}  # fmt: skip
"""ms per batch of 8, as ms asleep and of CPU time per sample."""


def synthetic(loading: str, compute: str) -> Made:
    threads, make = COMPUTE[compute]
    torch.set_num_threads(threads or torch.get_num_threads())
    return Made(Synthetic(*LOADING[loading]), make(), {"batch_size": 8}, torch.get_num_threads())


def trained(model: nn.Module, outputs: int) -> Callable[[Any], None]:
    """A training step on (inputs, classes)."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def work(batch: Any) -> None:
        inputs, wanted = batch
        loss = nn.functional.cross_entropy(model(inputs), wanted % outputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return work


def convolutions(channels: int, width: int = 24) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, stride=2), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
    )  # fmt: skip


class Items(Dataset[Any]):
    """Samples by a function of their index."""

    def __init__(self, item: Callable[[int], Any]) -> None:
        self._item = item

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return self._item(index)


def jpegs() -> Made:
    """Photographs of noise over gradients, decoded, turned and cut by PIL."""
    from PIL import Image

    draw = np.random.default_rng(0)
    files = []
    for _ in range(32):
        smooth = draw.integers(0, 255, (18, 24, 3)).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(smooth).resize((480, 360), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        files.append(file.getvalue())

    def item(index: int) -> tuple[torch.Tensor, int]:
        picture = Image.open(io.BytesIO(files[index % 32])).convert("RGB").rotate(index % 7).resize((96, 96))
        return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255, index % 10

    return Made(Items(item), trained(convolutions(3), 10), {"batch_size": 16}, torch.get_num_threads())


def texts() -> Made:
    """Python's own sources cut into words by a regular expression and looked up."""
    pages = [file.read_text(errors="replace")[:6000] for file in sorted(Path(json.__file__).parents[1].glob("*.py"))]
    words = re.compile(r"[A-Za-z_]+|\d+|[^\sA-Za-z_\d]")

    def item(index: int) -> tuple[torch.Tensor, int]:
        ids = [hash(word) % 20_000 for word in words.findall(pages[index % len(pages)])][:512]
        return torch.tensor(ids + [0] * (512 - len(ids))), index % 10

    model = nn.Sequential(nn.EmbeddingBag(20_000, 256), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return Made(Items(item), trained(model, 10), {"batch_size": 16}, torch.get_num_threads())


def augmented() -> Made:
    """Small pictures from one array, cut, turned and noised by NumPy."""
    pictures = np.random.default_rng(0).integers(0, 255, (512, 72, 72, 3)).astype(np.uint8)

    def item(index: int) -> tuple[torch.Tensor, int]:
        draw = np.random.default_rng(index)
        top, left = draw.integers(0, 8, 2)
        cut = pictures[index % 512, top : top + 64, left : left + 64].astype(np.float32) / 255
        turned = np.rot90(cut, index % 4)[:, :: 1 - 2 * (index % 2)] + 0.05 * draw.normal(size=(64, 64, 3))
        return torch.from_numpy(np.ascontiguousarray(turned.transpose(2, 0, 1), np.float32)), index % 10

    return Made(Items(item), trained(convolutions(3, 48), 10), {"batch_size": 32}, torch.get_num_threads())


def tensors() -> Made:
    """Rows of memory one by one into a small network: workers are the mistake."""
    data = TensorDataset(torch.randn(LENGTH, 20), torch.arange(LENGTH) % 10)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    return Made(data, trained(model, 10), {"batch_size": 64}, torch.get_num_threads())


def spectra() -> Made:
    """Sound from files (in the page cache), windowed and transformed by NumPy."""
    folder = Path(tempfile.mkdtemp())
    for number in range(64):
        np.save(folder / f"{number}.npy", np.random.default_rng(number).normal(size=16_000).astype(np.float32))

    def item(index: int) -> tuple[torch.Tensor, int]:
        wave = np.load(folder / f"{index % 64}.npy")
        frames = np.lib.stride_tricks.sliding_window_view(wave, 512)[::128] * np.hanning(512)
        return torch.from_numpy(np.log1p(np.abs(np.fft.rfft(frames))).astype(np.float32))[None], index % 10

    return Made(Items(item), trained(convolutions(1), 10), {"batch_size": 16}, torch.get_num_threads())


def records() -> Made:
    """Compressed JSON: unpacked, parsed, made a tensor."""
    draw = np.random.default_rng(0)
    packed = [gzip.compress(json.dumps(draw.normal(size=600).round(4).tolist()).encode()) for _ in range(64)]

    def item(index: int) -> tuple[torch.Tensor, int]:
        return torch.tensor(json.loads(gzip.decompress(packed[index % 64]))), index % 10

    model = nn.Sequential(nn.Linear(600, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return Made(Items(item), trained(model, 10), {"batch_size": 64}, torch.get_num_threads())


def remote() -> Made:
    """Rows that a server hands out: a millisecond and a half each."""
    rows = torch.randn(4096, 512)

    def item(index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.0015)
        return rows[index % 4096], index % 10

    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return Made(Items(item), trained(model, 10), {"batch_size": 16}, torch.get_num_threads())


def padded() -> Made:
    """Lines of source as bytes, padded one by one by a collate function in Python."""
    text = Path(argparse_file()).read_bytes().splitlines()
    lines = [list(line[:64]) for line in text if len(line) > 30]

    def collate(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.zeros(len(samples), 64, dtype=torch.long)
        for row, (line, _) in enumerate(samples):
            for column, token in enumerate(line):
                tokens[row, column] = token
        return tokens, torch.tensor([wanted for _, wanted in samples])

    model = nn.Sequential(nn.Embedding(256, 64), nn.Flatten(), nn.Linear(4096, 256), nn.ReLU(), nn.Linear(256, 10))
    data = Items(lambda index: (lines[index % len(lines)], index % 10))
    return Made(data, trained(model, 10), {"batch_size": 24, "collate_fn": collate}, torch.get_num_threads())


def argparse_file() -> str:
    import argparse

    return argparse.__file__


REAL = {"JPEG by PIL": jpegs, "words by re": texts, "augmented by NumPy": augmented, "TensorDataset": tensors,
        "spectra by NumPy": spectra, "gzip and JSON": records, "slow server": remote,
        "padded in Python": padded}  # fmt: skip


def names() -> Iterator[str]:
    """synthetic ones as 'LOADING | COMPUTE'."""
    for loading in LOADING:
        for compute in COMPUTE:
            yield f"{loading} | {compute}"
    yield from REAL


def made(name: str) -> Made:
    """The pipeline of that name, in this process."""
    if name in REAL:
        return REAL[name]()
    loading, compute = name.split(" | ")
    return synthetic(loading, compute)
