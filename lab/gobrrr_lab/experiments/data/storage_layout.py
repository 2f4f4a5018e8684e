"""39: many small files, one archive, a memory map."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found, Row

SAMPLE = 16 << 10  # bytes of a sample; proposed: a small file, mostly opened; other sizes would settle it


def measure(bench: Bench) -> Found:
    """All samples read in a drawn order, warm: each from its file, by offset from one file, from a memory map."""
    count = bench.size(2048, 16)
    with tempfile.TemporaryDirectory(prefix="gobrrr-lab-") as name:
        folder = Path(name)
        samples = np.random.RandomState(0).bytes(SAMPLE)
        paths = [folder / f"{i:05d}.bin" for i in range(count)]
        for path in paths:
            path.write_bytes(samples)
        archive = folder / "all.bin"
        archive.write_bytes(samples * count)
        mapped = np.memmap(archive, np.uint8, "r").reshape(count, SAMPLE)
        order = np.random.RandomState(1).permutation(count).tolist()

        def by_offset() -> None:
            with archive.open("rb") as file:
                for i in order:
                    file.seek(i * SAMPLE)
                    file.read(SAMPLE)

        def by_file() -> None:
            for i in order:
                paths[i].read_bytes()

        def by_map() -> None:
            for i in order:
                mapped[i].tobytes()

        factor = bench.pair(by_file, by_map, of=4)
        ways = {"files": by_file, "one file, by offset": by_offset, "memory map": by_map}
        rows = tuple(Row(f"{count} samples, {name}", bench.time(way, of=4), unit="ns") for name, way in ways.items())
    return Found(factor, None, rows)


EXPERIMENT = Experiment(
    number=39, chapter="data", title="Many small files, one archive, a memory map",
    claim="A file for each sample costs a lookup, an open and a close each; one file that is read by offset or "
    "mapped costs a copy.",
    source="course on efficient deep learning, raw data on disk; FFCV (2022)",
    published="ResNet-50 to 75 % in 20 minutes with data packed into one file (FFCV); no table by layout",
    factor="time to read 2,048 samples of 16 KiB from files over reading them from a memory map, warm",
    reproduced=(2.0, 50.0),
    why="Opening a file walks its folder, checks rights and makes an object in the kernel: some 10 us, as long as "
    "copying 100 KB. On network storage it is a round trip. So samples below some 100 KB belong into shards or "
    "maps.",
    measure=measure, finding=("small_files", "BRR401"), needs=(), seconds=10.0,
)  # fmt: skip
