"""Does an edit make a program end that runs out of memory: the verdict's words and codes, and one real proof."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gobrrr.guard.model.verdict import GREEN, RED, Guarded
from gobrrr.recording.model.out_of_memory import OutOfMemory
from gobrrr.report.memory.fitted import blocks, headline
from gobrrr.report.text.page import rendered
from gobrrr.rules.memory.out_of_memory import diagnosis
from gobrrr.trial.receipt.swept import Fitted

DIED = diagnosis(OutOfMemory("RuntimeError", "can't allocate memory", asked=1 << 20, steps=3))


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (Fitted(edit="low.diff", plain=DIED, fits=True, steps=9, guard=Guarded(GREEN[0]), batch="batch_size=2"), 0,
         "low.diff makes it fit: 9 steps, where the program dies after 3 steps; numbers match at batch_size=2."),
        (Fitted(edit="low.diff", plain=DIED, fits=True, steps=9, guard=Guarded(RED[0])), 6, "its numbers are others."),
        (Fitted(edit="low.diff", plain=DIED, fits=True, steps=9), 3, "numbers unverified."),
        (Fitted(edit="low.diff", plain=DIED, fits=False, steps=3, again=DIED), 1,
         "low.diff does not make it fit: it runs out of memory after 3 steps."),
        (Fitted(edit="low.diff", plain=DIED, fits=False, ended="ended with 1 after 0 steps"), 1, "it ended with 1"),
    ],
)  # fmt: skip
def test_the_verdict_and_its_code(found: Fitted, code: int, words: str) -> None:
    assert found.exit_code == code
    assert words in headline(found)
    assert "Out of memory: 1.00 MiB asked" in rendered(blocks(found))


PROGRAM = """import resource
import torch

batch_size = 4096
used = int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmData"))) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + (512 << 20),) * 2)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 8192), torch.nn.Linear(8192, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(60):
    x = torch.randn(batch_size if step > 1 else 8, 64)
    loss = sum(model(part).square().sum() for part in x.split(batch_size * 8)) / len(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_an_edit_that_accumulates_is_proven_to_fit(tmp_path: Path) -> None:
    wide = PROGRAM.replace("batch_size = 4096", "batch_size = 32768")
    (tmp_path / "train.py").write_text(wide)
    edited = wide.replace("    loss = sum(", "    optimizer.zero_grad()\n    loss = sum(").replace(
        "    loss = sum(model(part).square().sum() for part in x.split(batch_size * 8)) / len(x)\n"
        "    optimizer.zero_grad()\n    loss.backward()\n",
        "    for part in x.split(512):\n        (model(part).square().sum() / len(x)).backward()\n",
    )
    (tmp_path / "edited").mkdir()
    (tmp_path / "edited" / "train.py").write_text(edited)
    words = [
        "prove",
        "--objective",
        "fit",
        "--with",
        "edited",
        "--batch",
        "16",
        "--minutes",
        "3",
        "-o",
        "out",
        "--json",
    ]
    done = subprocess.run([sys.executable, "-m", "gobrrr", *words, "train.py"], cwd=tmp_path, capture_output=True,
                          text=True, timeout=400)  # fmt: skip
    found = json.loads(done.stdout)
    assert found["fits"], done.stderr
    assert found["plain"]["failed"]["phase"] == "forward"
    assert done.returncode == 0, done.stderr
