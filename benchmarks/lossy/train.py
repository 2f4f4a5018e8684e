"""Train a model of benchmarks/lossy and save its weights as its program loads them; minutes on one core.

python -m benchmarks.lossy.train NAME [NAME ...] --out DIR
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

Saver = Callable[[Path], None]


def fit(model: Any, loss_of: Callable[[], Any], steps: int, rate: float) -> None:
    """AdamW with a warm start and a falling rate."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.1)
    model.train()
    began = time.monotonic()
    for step in range(steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=torch.cpu._is_avx512_bf16_supported()):
            loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.4f} {time.monotonic() - began:.0f} s", flush=True)
    model.eval()


def state(model: Any, name: str) -> Saver:
    """Its weights as one file."""
    return lambda folder: torch.save(model.state_dict(), folder / f"{name}.pt")


def pretrained(model: Any, name: str) -> Saver:
    """Its weights as transformers saves them."""
    return lambda folder: model.save_pretrained(folder / name)


def resnet() -> Saver:
    from benchmarks.lossy.programs.resnet import ResNet, augment, digits

    model, rng, (images, labels) = ResNet(), np.random.default_rng(1), digits(train=True)

    def loss() -> Any:
        rows = torch.randint(len(images), (32,))
        return F.cross_entropy(model(augment(images[rows], rng)), labels[rows])

    fit(model, loss, 200, 2e-3)
    return state(model, "resnet")


def bert() -> Saver:
    from transformers import BertForSequenceClassification

    from benchmarks.lossy.programs import bert as program

    model, texts = BertForSequenceClassification(program.config()), program.read(train=True)

    def loss() -> Any:
        inputs, labels = program.sample(texts, 16)
        return model(**inputs, labels=labels).loss

    fit(model, loss, 450, 3e-4)
    return pretrained(model, "bert")


def gpt2() -> Saver:
    from transformers import GPT2LMHeadModel

    from benchmarks.lossy.programs import gpt2 as program

    model, data = GPT2LMHeadModel(program.config), program.corpus(train=True)

    def loss() -> Any:
        x = program.get_batch(data, 16)
        return model(input_ids=x, labels=x).loss

    fit(model, loss, 500, 1e-3)
    return pretrained(model, "gpt2")


def mlp() -> Saver:
    from benchmarks.lossy.programs.mlp import MLP, load_data, noisy

    model, (x, y) = MLP(), load_data(train=True)

    def loss() -> Any:
        rows = torch.randint(len(x), (128,))
        return F.cross_entropy(model(noisy(x[rows])), y[rows])

    fit(model, loss, 250, 1e-3)
    return state(model, "mlp")


def vgg() -> Saver:
    from benchmarks.lossy.programs.vgg import VGG, Numbers

    model, data = VGG(), Numbers(100_000, train=True)

    def loss() -> Any:
        images, labels = zip(*(data[row] for row in torch.randint(len(data), (32,)).tolist()), strict=True)
        return F.cross_entropy(model(torch.stack(images)), torch.stack(labels))

    fit(model, loss, 250, 1e-3)
    return state(model, "vgg")


def mobilenet() -> Saver:
    from benchmarks.lossy.programs.mobilenet import get_data, turn
    from benchmarks.lossy.programs.mobilenet import mobilenet as build

    model, (x, y) = build(), get_data(train=True)

    def loss() -> Any:
        rows = torch.randint(len(x), (64,))
        return F.cross_entropy(model(turn(x[rows])), y[rows])

    fit(model, loss, 250, 3e-3)
    return state(model, "mobilenet")


def vit() -> Saver:
    from transformers import ViTForImageClassification

    from benchmarks.lossy.programs.vit import corrupt, make_config, prepare

    model, (images, labels), rng = ViTForImageClassification(make_config()), prepare("train"), np.random.default_rng(1)

    def loss() -> Any:
        rows = rng.integers(0, len(images), 32)
        return model(pixel_values=corrupt(images[rows], rng), labels=torch.from_numpy(labels[rows])).loss

    fit(model, loss, 500, 5e-4)
    return pretrained(model, "vit")


def whisper() -> Saver:
    from transformers import WhisperForConditionalGeneration

    from benchmarks.lossy.programs import whisper as program

    model = WhisperForConditionalGeneration(program.whisper_config())

    def loss() -> Any:
        audio, notes = program.melodies(16, 0.5)
        return model(input_features=program.log_spectrogram(audio), labels=notes).loss

    fit(model, loss, 300, 1e-3)
    return pretrained(model, "whisper")


def t5() -> Saver:
    from benchmarks.lossy.programs.t5 import build, collate, read

    model, text = build(), read(train=True)
    fit(model, lambda: model(**collate(text, 16)).loss, 400, 2e-3)
    return pretrained(model, "t5")


def recommender() -> Saver:
    from benchmarks.lossy.programs.recommender import ITEMS, NCF, interactions

    users = interactions()
    model, rng = NCF(len(users), ITEMS), np.random.default_rng(1)
    seen = np.array([(user, item) for user, items in enumerate(users) for item in items[:-1]])

    def loss() -> Any:
        chosen = seen[rng.integers(0, len(seen), 256)]
        user = torch.from_numpy(np.repeat(chosen[:, 0], 4))
        item = torch.from_numpy(np.concatenate([chosen[:, 1:], rng.integers(0, ITEMS, (256, 3))], 1).reshape(-1))
        return F.binary_cross_entropy_with_logits(model(user, item), torch.tensor([1.0, 0, 0, 0]).repeat(256))

    fit(model, loss, 400, 1e-3)
    return state(model, "recommender")


def lstm() -> Saver:
    from benchmarks.lossy.programs.lstm import CharLSTM, batches, split

    np.random.seed(1)
    model, draws = CharLSTM(), batches(split()[0], 10_000, 32, 64)

    def loss() -> Any:
        x, y = next(draws)
        return F.cross_entropy(model(x)[0].flatten(0, 1), y.flatten())

    fit(model, loss, 250, 3e-3)
    return state(model, "lstm")


def diffusion() -> Saver:
    from benchmarks.lossy.programs.diffusion import UNet, noised, patches

    rng = np.random.default_rng(1)
    model, clean = UNet(), torch.stack(list(patches(5000, True, rng)))

    def loss() -> Any:
        x, t, noise = noised(clean[rng.integers(0, len(clean), 32)], rng)
        return F.mse_loss(model(x, t), noise)

    fit(model, loss, 200, 1e-3)
    return state(model, "diffusion")


TRAINERS: dict[str, Callable[[], Saver]] = {
    each.__name__: each
    for each in (resnet, mobilenet, vgg, mlp, bert, vit, gpt2, whisper, t5, recommender, lstm, diffusion)
}


def train(name: str, folder: Path) -> None:
    """Train it and save its weights there."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    random.seed(0)
    TRAINERS[name]()(folder)


def ensure(name: str, folder: Path) -> None:
    """Train it, in a process of its own, where its weights are not there."""
    if not any((folder / each).exists() for each in (name, f"{name}.pt")):
        subprocess.run([sys.executable, "-m", "benchmarks.lossy.train", name, "--out", str(folder)], check=True)


def main() -> None:
    """Train each of those named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=sorted(TRAINERS), metavar="NAME")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    for name in args.names:
        train(name, args.out)


if __name__ == "__main__":
    main()
