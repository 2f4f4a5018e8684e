"""A small training with loader workers. Words: `dies N` ends with 3 at step N, `hangs N`, `short N` makes N steps,
`compiles N` is compiled, breaks its graph once, and is compiled
anew at step N, `adamw N` has that optimizer of torch's."""

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.append(str(Path(__file__).parents[2] / "support"))
from descent import Descent


class Counted(Dataset):
    """Every sample that a worker makes is one byte more in the file `samples`."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        with Path("samples").open("a") as file:
            file.write("x")
        return torch.full((8,), float(index))


what, at = (sys.argv[1], int(sys.argv[2])) if len(sys.argv) > 2 else ("", 10_000)
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters()) if what == "adamw" else Descent(model.parameters(), 1e-6)
if what == "compiles":

    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.scale = torch.nn.Linear(8, 8), 1.0

        def forward(self, x):
            y = self.inner(x) * self.scale
            torch._dynamo.graph_break()
            return y + 1

    model = Broken()
    optimizer = Descent(model.parameters(), 1e-6)
    model.compile(backend="eager", dynamic=False)
loader = DataLoader(Counted(), batch_size=4, num_workers=1 if what == "workers" else 0, prefetch_factor=None)
step = 0
while step < (at if what == "short" else 10_000):
    for batch in loader:
        if step == at and what == "dies":
            print("the disk is full", file=sys.stderr)
            sys.exit(3)
        if step == at and what == "hangs":
            time.sleep(1000)
        if step == at and what == "compiles":
            model.scale = 2.0
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if what == "short" and step == at:
            break
