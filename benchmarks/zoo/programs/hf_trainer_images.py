"""Image classification with the Trainer, after the transformers documentation (tasks/image_classification)."""

import tempfile

import numpy as np
import torch
from datasets import Dataset
from PIL import Image
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

set_seed(0)
draw = np.random.default_rng(0)
pictures = [Image.fromarray(draw.integers(0, 256, (480, 640, 3), dtype=np.uint8)) for _ in range(64)]
data = Dataset.from_dict({"number": list(range(480)), "label": [n % 10 for n in range(480)]})


def transforms(examples):
    pixels = []
    for number in examples["number"]:
        image = pictures[number % 64].convert("RGB").resize((112, 112), Image.BICUBIC)
        array = np.asarray(image.rotate(number % 20 - 10), dtype=np.float32) / 255
        pixels.append(torch.from_numpy((array - 0.5) / 0.5).permute(2, 0, 1))
    return {"pixel_values": pixels, "labels": examples["label"]}


config = ViTConfig(
    image_size=112,
    patch_size=16,
    hidden_size=96,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=384,
    num_labels=10,
)
args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=8,
    num_train_epochs=1,
    remove_unused_columns=False,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model=ViTForImageClassification(config), args=args, train_dataset=data.with_transform(transforms))
trainer.train()
print("steps", trainer.state.global_step)
