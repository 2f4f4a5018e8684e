"""Train a small embedding network (classes + supervised contrast) with Lightning."""

import argparse
import os

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUM_CLASSES = 8
MEAN = [0.45, 0.45, 0.45]
STD = [0.25, 0.25, 0.25]


def draw_images(n, seed):
    """Draw striped patches whose angle is the class."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(NUM_CLASSES, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.arange(36), torch.arange(36), indexing="ij")
    angle = labels[:, None, None] * 3.14159 / NUM_CLASSES
    phase = torch.rand(n, 1, 1, generator=g) * 6.28
    wave = torch.sin(0.7 * (xx * torch.cos(angle) + yy * torch.sin(angle)) + phase)
    colour = 0.3 + 0.7 * torch.rand(n, 3, 1, 1, generator=g)
    images = (0.5 + 0.3 * wave[:, None] * colour + 0.2 * torch.randn(n, 3, 36, 36, generator=g)).clamp(0, 1)
    return (images * 255).to(torch.uint8), labels


class Patches(Dataset):
    def __init__(self, n, seed, train):
        self.images, self.labels = draw_images(n, seed)
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = self.images[i].float() / 255
        for c in range(3):
            img[c] = (img[c] - MEAN[c]) / STD[c]
        return img, self.labels[i]


class PatchData(L.LightningDataModule):
    def setup(self, stage=None):
        self.train_set = Patches(1240, seed=1, train=True)
        self.val_set = Patches(400, seed=2, train=False)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=32, shuffle=True, num_workers=0)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=32, num_workers=0)


class ConvBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1)
        self.norm = nn.GroupNorm(4, cout)
        self.skip = nn.Conv2d(cin, cout, 1)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.norm(self.conv(x)) + self.skip(x)), 2)


class LitEmbedder(L.LightningModule):
    def __init__(self, lr=1e-3, temperature=0.2):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(ConvBlock(3, 16), ConvBlock(16, 32), ConvBlock(32, 64))
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(64 * 16, 64)
        self.classifier = nn.Linear(64, NUM_CLASSES)
        self.losses = []
        self.confusion = None

    def embed(self, x):
        return self.head(self.dropout(self.body(x).flatten(1)))

    def augment(self, x):
        # crop 32 of 36 and mirror half of them
        out = []
        for img in x:
            dy, dx = torch.randint(0, 5, (2,)).tolist()
            img = img[:, dy : dy + 32, dx : dx + 32]
            if torch.rand(1).item() < 0.5:
                img = torch.flip(torch.flip(img, [2]), [1])
            out.append(img)
        return torch.stack(out)

    def contrast(self, z, y):
        # supervised contrastive loss, as the paper writes it
        z = F.normalize(z, dim=1)
        n = len(y)
        total = 0.0
        for i in range(n):
            sims = (z[i] * z).sum(1) / self.hparams.temperature
            others = torch.arange(n) != i
            log_denominator = torch.logsumexp(sims[others], dim=0)
            same = (y == y[i]) & others
            if same.any():
                total = total - (sims[same] - log_denominator).mean()
        return total / n

    def training_step(self, batch, batch_idx):
        x, y = batch
        x = self.augment(x)
        z = self.embed(x)
        logits = self.classifier(F.relu(z))
        ce = F.cross_entropy(logits, y)
        loss = ce + 0.5 * self.contrast(z, y)
        self.losses.append(loss.item())
        self.log("train_loss", loss)
        if self.global_step % 10 == 0:
            print(f"step {self.global_step} loss {loss.item():.4f}", flush=True)
        return loss

    def on_validation_epoch_start(self):
        self.confusion = torch.zeros(NUM_CLASSES, NUM_CLASSES)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        x = x[:, :, 2:34, 2:34]
        logits = self.classifier(F.relu(self.embed(x)))
        self.log("val_loss", F.cross_entropy(logits, y), batch_size=len(y))
        for truth, guess in zip(y, logits.argmax(1)):
            self.confusion[truth, guess] += 1

    def on_validation_epoch_end(self):
        acc = self.confusion.trace() / self.confusion.sum()
        self.log("val_acc", acc)
        print(f"epoch {self.current_epoch} val_acc {acc:.4f}", flush=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.05)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
        return [optimizer], [scheduler]


class GradWatch(Callback):
    """Warn when a layer's gradient dies."""

    def on_before_optimizer_step(self, trainer, module, optimizer):
        self.norms = {}
        for name, p in module.named_parameters():
            self.norms[name] = p.grad.norm().item()
        if min(self.norms.values()) == 0.0:
            print("a gradient is zero:", min(self.norms, key=self.norms.get))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=-1)
    args = parser.parse_args()

    L.seed_everything(7)
    model = LitEmbedder()
    trainer = L.Trainer(
        max_epochs=100,
        max_steps=args.steps,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        detect_anomaly=True,
        num_sanity_val_steps=2,
        callbacks=[ModelCheckpoint(dirpath="out", monitor="val_acc", mode="max", filename="best"), GradWatch()],
    )
    data = PatchData()
    trainer.fit(model, datamodule=data)
    print(trainer.validate(model, datamodule=data, verbose=False))
    os.makedirs("out", exist_ok=True)
    trainer.save_checkpoint("out/last.ckpt")


if __name__ == "__main__":
    main()
