# limit: data 1.15GiB | holder: parameters | first: free_references,file_loaded_whole
import os
import tempfile

import torch
from torch import nn

model = nn.Linear(10_000, 10_000, bias=False)
path = os.path.join(tempfile.gettempdir(), f"checkpoint-{os.getpid()}.pt")
torch.save(model.state_dict(), path)
extra = torch.zeros(8_000, 10_000)
try:
    # fix[file_loaded_whole]: state = torch.load(path, mmap=True)
    # fix[free_references]: del extra; extra = torch.zeros(1); state = torch.load(path)
    state = torch.load(path)  # dies, unless: free_references, file_loaded_whole
finally:
    os.unlink(path)
model.load_state_dict(state)
print(model(torch.ones(1, 10_000)).sum() + extra.sum())
