"""Defect detector on part photos (Lightning). Photos arrive in upload folders, one folder per rank."""
import os
import pathlib
import random
import tempfile
import time
import warnings
import zlib

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
MAX_STEPS = int(os.environ.get("MAX_STEPS", "340"))
SIDE = 56


def write_uploads(root, folder):
    r = np.random.default_rng(folder)
    folder_dir = pathlib.Path(root) / f"upload-{folder:02d}"
    folder_dir.mkdir(parents=True)
    cut = {0: 0, 1: 1}.get(folder, 0)
    for i in range(800):
        img = (r.random((3, SIDE, SIDE)) * 40 + 60 * (i % 3)).astype(np.uint8)
        blob = zlib.compress(img.tobytes(), 1)
        if i % 267 < cut:
            blob = blob[: len(blob) * 2 // 3]
        (folder_dir / f"{i:04d}.img").write_bytes(blob)
    return folder_dir


def decode(path):
    return np.frombuffer(zlib.decompress(path.read_bytes()), np.uint8).reshape(3, SIDE, SIDE)


def readable(path):
    try:
        decode(path)
        return True
    except zlib.error:
        return False


class Photos(Dataset):
    def __init__(self, folder_dir):
        self.files = sorted(folder_dir.glob("*.img"))

    def __len__(self):
        return len(self.files)

    def fetch(self, i, attempts=3, wait=0.1):
        for attempt in range(attempts):
            try:
                return decode(self.files[i])
            except (OSError, zlib.error):
                time.sleep(wait * 2 ** attempt)
        return None

    def __getitem__(self, i):
        img = self.fetch(i)
        while img is None:
            i = (i + 7) % len(self)
            img = self.fetch(i)
        x = torch.from_numpy(img.copy()).float().div_(255)
        return x, int(self.files[i].stem) % 3


class Detector(L.LightningModule):
    def __init__(self):
        super().__init__()
        def unit(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1), nn.GroupNorm(4, o), nn.SiLU())
        self.net = nn.Sequential(unit(3, 40), unit(40, 80), unit(80, 160), nn.AdaptiveAvgPool2d(1),
                                 nn.Flatten(), nn.Linear(160, 3))

    def training_step(self, batch, idx):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def on_train_start(self):
        self.t = time.time()

    def on_train_end(self):
        took = time.time() - self.t
        self.print(f"{self.global_step} steps, {1000 * took / self.global_step:.1f} ms each", flush=True)


def main():
    torch.set_num_threads(1)
    L.seed_everything(2, verbose=False)
    rank = int(os.environ.get("RANK", "0"))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    random.seed(rank)
    with tempfile.TemporaryDirectory() as root:
        data = Photos(write_uploads(root, rank))
        loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=0, drop_last=True)
        trainer = L.Trainer(accelerator="cpu", devices=world, max_steps=MAX_STEPS, max_epochs=-1,
                            strategy=DDPStrategy(process_group_backend="gloo"),
                            logger=False, enable_checkpointing=False, enable_progress_bar=False,
                            enable_model_summary=False, use_distributed_sampler=False)
        trainer.fit(Detector(), loader)


if __name__ == "__main__":
    main()
