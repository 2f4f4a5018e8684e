import gzip
import io
import os
import tempfile
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(os.environ.get("STEPS", 400))


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(32 * 49, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x):
        return self.head(self.features(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Snapshot(L.Callback):
    def __init__(self, folder, every=50):
        self.folder = folder
        self.every = every

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.is_global_zero and trainer.global_step % self.every == 0:
            self.write(trainer, module)

    def write(self, trainer, module):
        buf = io.BytesIO()
        torch.save({"model": module.state_dict(),
                    "optim": trainer.optimizers[0].state_dict()}, buf)
        path = os.path.join(self.folder, f"step{trainer.global_step}.pt.gz")
        with gzip.open(path, "wb", compresslevel=6) as f:
            f.write(buf.getvalue())
        print("wrote", path, flush=True)


def main():
    L.seed_everything(9)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(6400, 1, 28, 28, generator=g)
    y = torch.randint(0, 10, (6400,), generator=g)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=STEPS, max_epochs=-1,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Snapshot(tempfile.mkdtemp())])
    trainer.fit(Digits(), loader)
    time.sleep(0.5)


if __name__ == "__main__":
    main()
