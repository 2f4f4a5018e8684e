"""Unconditional image generation: the training loop of the diffusers documentation (tutorials/basic_training)."""

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=32,
    in_channels=3,
    out_channels=3,
    layers_per_block=1,
    block_out_channels=(32, 64, 64),
    down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    norm_num_groups=8,
)
images = torch.rand(480, 3, 32, 32) * 2 - 1
train_dataloader = DataLoader(TensorDataset(images), batch_size=8, shuffle=True)
noise_scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
lr_scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=10, num_training_steps=100)
for epoch in range(1):
    for step, (clean_images,) in enumerate(train_dataloader):
        noise = torch.randn(clean_images.shape)
        timesteps = torch.randint(0, 1000, (clean_images.shape[0],), dtype=torch.int64)
        noisy_images = noise_scheduler.add_noise(clean_images, noise, timesteps)
        noise_pred = model(noisy_images, timesteps, return_dict=False)[0]
        loss = F.mse_loss(noise_pred, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: {loss.item():.3f}")
