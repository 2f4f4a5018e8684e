"""A training whose loader's worker is spawned, with a helper of its own and one in another session: what a signal at
its parent's death does not reach."""

import subprocess
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.append(str(Path(__file__).parents[2] / "support"))
from descent import Descent


class Zeros(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.zeros(8)


if __name__ == "__main__":
    helpers = [subprocess.Popen(["sleep", "600"], start_new_session=own) for own in (False, True)]
    model = torch.nn.Linear(8, 8)
    optimizer = Descent(model.parameters(), 0.1)
    while True:
        for x in DataLoader(Zeros(), batch_size=2, num_workers=1, multiprocessing_context="spawn"):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
