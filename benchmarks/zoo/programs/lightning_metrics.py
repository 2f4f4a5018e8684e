"""A Lightning classifier that asks torchmetrics for everything seen so far after every step."""

import lightning as L
import torch
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 20))
        self.auroc = torchmetrics.AUROC(task="multiclass", num_classes=20)

    def training_step(self, batch, batch_idx):
        inputs, labels = batch
        logits = self.net(inputs)
        loss = nn.functional.cross_entropy(logits, labels)
        self.auroc.update(logits.detach().softmax(-1), labels)
        self.log("train_auroc", self.auroc.compute())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


L.seed_everything(0)
inputs = torch.randn(64 * 100, 128)
loader = DataLoader(TensorDataset(inputs, torch.randint(0, 20, (len(inputs),))), batch_size=64, shuffle=True)
trainer = L.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Classifier(), loader)
print("done")
