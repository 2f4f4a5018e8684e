"""Galaxy morphology classifier (Lightning) whose image size changes from step to step, with a prefetching thread."""
import gc
import os
import queue
import random
import threading
import time
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, IterableDataset

warnings.filterwarnings("ignore")
MAX_STEPS = int(os.environ.get("MAX_STEPS", "750"))
SIZES = (32, 48, 80)


class Galaxies(IterableDataset):
    """Yields whole batches; the size of a batch's images follows a schedule common to all ranks."""

    def __init__(self, rank, depth=3):
        self.rank, self.depth = rank, depth

    def produce(self, out):
        sizes = random.Random(0)
        g = torch.Generator().manual_seed(self.rank)
        while True:
            side = sizes.choice(SIZES)
            y = torch.randint(0, 4, (8,), generator=g)
            x = torch.rand(8, 1, side, side, generator=g) * (0.5 + 0.25 * y[:, None, None, None])
            out.put((x, y))

    def __iter__(self):
        out = queue.Queue(self.depth)
        threading.Thread(target=self.produce, args=(out,), daemon=True).start()
        while True:
            yield out.get()


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        def unit(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1), nn.BatchNorm2d(o), nn.ReLU())
        self.net = nn.Sequential(unit(1, 32), unit(32, 64), unit(64, 128), nn.AdaptiveAvgPool2d(1),
                                 nn.Flatten(), nn.Linear(128, 4))
        self.confusion = torch.zeros(4, 4, dtype=torch.long)

    def training_step(self, batch, idx):
        x, y = batch
        logits = self.net(x)
        self.confusion.index_put_((y, logits.argmax(1)), torch.ones_like(y), accumulate=True)
        return F.cross_entropy(logits, y)

    def on_train_batch_end(self, outputs, batch, idx):
        if idx % 200 == 199:
            gc.collect()
            right = self.confusion.diagonal().sum() / self.confusion.sum()
            self.print(f"batch {idx + 1} accuracy {right.item():.3f}", flush=True)
            self.confusion.zero_()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def on_train_start(self):
        gc.disable()
        self.t = time.time()

    def on_train_end(self):
        took = time.time() - self.t
        self.print(f"{self.global_step} steps, {1000 * took / self.global_step:.1f} ms each", flush=True)


def main():
    torch.set_num_threads(1)
    L.seed_everything(3, verbose=False)
    rank = int(os.environ.get("RANK", "0"))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    trainer = L.Trainer(accelerator="cpu", devices=world, max_steps=MAX_STEPS, accumulate_grad_batches=2,
                        strategy=DDPStrategy(process_group_backend="gloo"), max_epochs=-1,
                        logger=False, enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False, use_distributed_sampler=False)
    trainer.fit(Classifier(), DataLoader(Galaxies(rank), batch_size=None, num_workers=0))


if __name__ == "__main__":
    main()
