"""Evaluate a ViT on noisy digits (transformers)."""

import argparse
import logging

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score, log_loss
from transformers import ViTConfig, ViTForImageClassification

logger = logging.getLogger("eval")


def make_config():
    return ViTConfig(image_size=16, patch_size=4, num_channels=1, hidden_size=256, num_hidden_layers=4,
                     num_attention_heads=4, intermediate_size=1024, num_labels=10)  # fmt: skip


def prepare(split):
    digits = load_digits()
    images = np.kron(digits.images / 16.0, np.ones((1, 2, 2))).astype(np.float32)
    index = np.arange(len(images)) % 5 < 3
    if split == "test":
        index = ~index
    return images[index][:, None], digits.target[index]


def corrupt(images, rng, sigma=0.35):
    return torch.from_numpy(images + sigma * rng.standard_normal(images.shape).astype(np.float32))


def predict(model, images, batch_size):
    outputs = []
    for batch in torch.split(images, batch_size):
        with torch.no_grad():
            outputs.append(model(pixel_values=batch).logits.softmax(-1))
    return torch.cat(outputs).float().numpy()


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description="evaluate")
    parser.add_argument("--model_name_or_path", type=str, default="vit")
    parser.add_argument("--per_device_eval_batch_size", type=int, default=64)
    parser.add_argument("--num_passes", type=int, default=6)
    parser.add_argument("--max_eval_samples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    model = ViTForImageClassification.from_pretrained(args.model_name_or_path)
    model.eval()
    images, labels = prepare("test")
    scores = []
    for epoch in range(args.num_passes):
        chosen = rng.permutation(len(images))[: args.max_eval_samples]
        probabilities = predict(model, corrupt(images[chosen], rng), args.per_device_eval_batch_size)
        targets = labels[chosen]
        scores.append(
            (accuracy_score(targets, probabilities.argmax(1)), log_loss(targets, probabilities, labels=range(10)))
        )
        logger.info("pass %d of %d", epoch + 1, args.num_passes)
    accuracy, loss = np.mean(scores, axis=0)
    print("***** eval metrics *****")
    print(f"  eval_accuracy = {accuracy:.4f}")
    print(f"  eval_loss     = {loss:.4f}")


if __name__ == "__main__":
    main()
