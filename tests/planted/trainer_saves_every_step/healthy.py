"""Fits a small regression head with the Hugging Face Trainer."""

import argparse
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Head(nn.Module):
    def __init__(self, width: int = 1536) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Linear(width, 1)

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        predicted = self.out(self.layers(features)).squeeze(1)
        return {"loss": nn.functional.mse_loss(predicted, labels), "predicted": predicted}


class Table(Dataset):
    def __init__(self, num_rows: int = 28_000) -> None:
        rows = torch.randn(num_rows, 256).exp()
        self.rows = (rows - rows.mean(dim=0)) / rows.std(dim=0)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"features": self.rows[index], "labels": self.rows[index, 0] * self.rows[index, 1]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        settings = TrainingArguments(
            output_dir=scratch,
            max_steps=args.steps,
            per_device_train_batch_size=32,
            learning_rate=1e-4,
            optim="adamw_torch_fused",
            logging_steps=50,
            save_steps=100,
            save_total_limit=1,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model=Head(), args=settings, train_dataset=Table())
        trainer.train()


if __name__ == "__main__":
    main()
