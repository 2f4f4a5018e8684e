# limit: data 1.5GiB | holder: arrays | first: free_references,keep_numbers
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.pictures = []
        for _ in range(count):
            picture = rng.integers(0, 255, (3, 128, 128), dtype=np.uint8)
            # fix[free_references]: self.pictures.append(picture); continue
            self.pictures.append((picture / 255.0).astype(np.float32))  # dies

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return torch.from_numpy(self.pictures[index]).float()


loader = DataLoader(Pictures(12_000), batch_size=16, shuffle=True)
model = torch.nn.Conv2d(3, 8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for at, batch in enumerate(loader):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    if at == 3:
        break
