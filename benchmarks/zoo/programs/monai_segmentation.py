"""3D segmentation after MONAI's spleen tutorial: random crops and turns per volume, a small UNet, a Dice loss."""

import torch
from monai.data import DataLoader, Dataset
from monai.losses import DiceLoss
from monai.networks.nets import UNet
from monai.transforms import (
    Compose,
    EnsureChannelFirstd,
    RandAffined,
    RandCropByPosNegLabeld,
    RandGaussianNoised,
    ScaleIntensityRanged,
)
from monai.utils import set_determinism

set_determinism(0)
volumes = [{"image": torch.randn(72, 72, 72) * 100, "label": (torch.rand(72, 72, 72) < 0.2).float()} for _ in range(8)]
train_transforms = Compose(
    [
        EnsureChannelFirstd(keys=["image", "label"], channel_dim="no_channel"),
        ScaleIntensityRanged(keys=["image"], a_min=-57, a_max=164, b_min=0.0, b_max=1.0, clip=True),
        RandAffined(keys=["image", "label"], prob=1.0, rotate_range=(0.3, 0.3, 0.3), mode=("bilinear", "nearest")),
        RandGaussianNoised(keys=["image"], prob=0.5),
        RandCropByPosNegLabeld(
            keys=["image", "label"], label_key="label", spatial_size=(32, 32, 32), pos=1, neg=1, num_samples=2
        ),
    ]
)
train_loader = DataLoader(Dataset(data=volumes, transform=train_transforms), batch_size=2, shuffle=True, num_workers=0)
model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(8, 16, 32, 64), strides=(2, 2, 2))
loss_function = DiceLoss(to_onehot_y=True, softmax=True)
optimizer = torch.optim.Adam(model.parameters(), 1e-4)
for epoch in range(10):
    model.train()
    epoch_loss = 0.0
    for batch_data in train_loader:
        inputs, labels = batch_data["image"], batch_data["label"]
        optimizer.zero_grad()
        loss = loss_function(model(inputs), labels)
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item()
    print(f"epoch {epoch} loss {epoch_loss / len(train_loader):.3f}")
