"""Classifying generated images (discs, squares, crosses, stripes under noise) with a vision transformer."""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import ViTConfig, ViTForImageClassification


def images(num, size=96):
    generator = torch.Generator().manual_seed(1)
    kinds = torch.randint(0, 4, (num,), generator=generator)
    row, column = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    disc, square = row**2 + column**2 < 0.3, (row.abs() < 0.5) & (column.abs() < 0.5)
    cross, stripes = (row.abs() < 0.15) | (column.abs() < 0.15), (row * 6).sin() > 0
    shapes = torch.stack([disc, square, cross, stripes]).float()
    pictures = shapes[kinds].unsqueeze(1).repeat(1, 3, 1, 1)
    return pictures + 0.5 * torch.randn(pictures.shape, generator=generator), kinds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=96, patch_size=8, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=1024, num_labels=4,
    )  # fmt: skip
    model = ViTForImageClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(TensorDataset(*images(512)), batch_size=8, shuffle=True)
    step = 0
    while step < args.steps:
        for pixels, labels in loader:
            loss = model(pixel_values=pixels, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
            step += 1
            if step == args.steps:
                return


if __name__ == "__main__":
    main()
