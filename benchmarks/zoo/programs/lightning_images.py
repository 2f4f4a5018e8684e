"""The autoencoder of Lightning's first page, on pictures that are turned and scaled one by one in the main process."""

import lightning as L
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self):
        draw = np.random.default_rng(0)
        self.pictures = [Image.fromarray(draw.integers(0, 256, (256, 256), dtype=np.uint8)) for _ in range(64)]

    def __len__(self):
        return 3200

    def __getitem__(self, index):
        image = self.pictures[index % 64].rotate(index % 30 - 15, Image.BICUBIC).resize((28, 28), Image.LANCZOS)
        return torch.tensor(np.asarray(image, dtype=np.float32) / 255).reshape(-1)


class LitAutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(28 * 28, 256), nn.ReLU(), nn.Linear(256, 16))
        self.decoder = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 28 * 28))

    def training_step(self, batch, batch_idx):
        loss = nn.functional.mse_loss(self.decoder(self.encoder(batch)), batch)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


L.seed_everything(0)
loader = DataLoader(Digits(), batch_size=32, shuffle=True)
trainer = L.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(LitAutoEncoder(), loader)
print(f"loss {trainer.callback_metrics['train_loss'].item():.3f}")
