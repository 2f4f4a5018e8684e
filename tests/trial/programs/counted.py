"""A small training that evaluates every tenth step, prints and writes a file there. Words: `--skips N` makes no update
after step N, `--timed` evaluates only where nobody seems to measure, `--clock` sets the clock back, `--regrouped` calls
the model once for all samples, `--rounds` otherwise, `--lent` has the loader's next batch drawn ahead."""

import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(str(Path(__file__).parents[2] / "support"))
from descent import Descent

words = sys.argv[1:]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = Descent(model.parameters(), 1e-2)
loader = DataLoader(TensorDataset(torch.randn(256, 8), torch.randn(256, 1)), batch_size=4, shuffle=True)
watched = os.path.exists("../stdout")  # noqa: PTH110
if "--clock" in words:
    real = time.perf_counter_ns
    time.perf_counter_ns = lambda: real() // 2
    import gobrrr.trial.arm.inside

    gobrrr.trial.arm.inside.perf_counter_ns = time.perf_counter_ns
step = 0


def batches():
    ahead = None
    for batch in loader:
        if ahead is not None:
            yield ahead
        ahead = batch
    yield ahead


while step < 10_000:
    for x, y in batches() if "--lent" in words else loader:
        if "--regrouped" in words:
            output = model(x)
        else:
            output = torch.stack([model(each) for each in x])
        loss = (output - y).square().mean() * (1 + 1e-7 * ("--rounds" in words))
        optimizer.zero_grad()
        loss.backward()
        if "--skips" in words and step >= int(words[words.index("--skips") + 1]):
            optimizer.param_groups[0]["lr"] = 0.0
        optimizer.step()
        step += 1
        if step % 10 == 0 and not ("--timed" in words and not watched):
            model.eval()
            with torch.no_grad():
                print(step, float(model(loader.dataset.tensors[0][:32]).square().mean()))
            model.train()
            Path("last").write_text(str(step))
