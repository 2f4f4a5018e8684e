"""Twelve ordinary programs, each with one ill form, the text that mends it by hand, and what is true of it.

A program is one file, models/NAME.py: models of transformers and torchvision where they are installed, plain ones
where not. Guilty lines carry a mark; a second cure is one more text to replace, for promises and proofs.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.plants import Plant
from benchmarks.tuned import MODELS
from tests.planted.catalogue import MARK

HERE = Path(__file__).with_name("models")
FAST = '    torch.set_float32_matmul_precision("high")\n'
SEED = "    torch.manual_seed(0)\n"
TF32 = ((SEED, SEED + FAST),)
HELPERS = ("plain.py",)


@dataclass(frozen=True)
class Ordinary(Plant):
    """`others`: (remedy or edit, what it needs accepted, codes of findings that promise it, texts to replace)."""

    folder: Path = HERE
    seconds: float = 36.0
    """Of its row: three runs, one of them watched."""
    others: tuple[tuple[str, str, tuple[str, ...], tuple[tuple[str, str], ...]], ...] = ()

    def put(self, place: Path, who: str, fix: tuple[tuple[str, str], ...] | None = None) -> Path:
        """The program and what it imports in a folder, as train.py: sick, the same in `fp32`, or mended by `fix`."""
        place.mkdir(parents=True, exist_ok=True)
        for helper in (*(HERE / name for name in HELPERS), MODELS / "corpus.py"):
            shutil.copy2(helper, place)
        text = self.source("sick") if who in ("sick", "fp32") else self.mended(fix or self.fix)
        text = text.replace(FAST, "") if who == "fp32" else text
        (place / "train.py").write_text(text, encoding="utf-8")
        return place / "train.py"

    def marks(self, place: Path) -> dict[str, set[int]]:
        """Lines that bear one of its codes, by file name."""
        return {file.name: {at for at, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
                            if set(MARK.findall(line)) & set(self.codes)} for file in place.glob("*.py")}  # fmt: skip


CALL = "            loss = gpt("
CAST = f"            with torch.autocast(DEVICE, torch.bfloat16):\n    {CALL}"
BF16 = ((CALL, CAST),)
FP16 = (
    (CALL, CAST.replace("bfloat16", "float16")),
    ("    step = 0\n", "    step, scaler = 0, torch.amp.GradScaler(DEVICE)\n"),
    ("            loss.backward()  # <- BRR110\n",
     "            scaler.scale(loss).backward()\n            scaler.unscale_(optimizer)\n"),
    ("            optimizer.step()\n", "            scaler.step(optimizer)\n            scaler.update()\n"),
)  # fmt: skip
LAST = (("    optimizer = ", "    model.to(memory_format=torch.channels_last)\n    optimizer = "),)

TWELVE = (
    Ordinary("gpt2_small", ("BRR110", "BRR102", "BRR105"), fix=TF32, healthy_steps=200, seconds=55, others=(
        ("bf16_autocast", "precision", ("BRR110", "BRR102"), BF16),
        ("float16_autocast", "precision", ("BRR110", "BRR102"), FP16),
    )),
    Ordinary("bert_base", ("BRR409",), fix=(
        ("length = LENGTH  # <- BRR409", "length = max(len(text) for text in texts)"),
    )),
    Ordinary("resnet_half", ("BRR204",), fix=LAST),
    Ordinary("photo_vit", ("BRR401", "BRR405", "BRR408"), fix=(("WORKERS = 0", "WORKERS = 1 if TINY else 8"),),
             healthy_steps=400, others=(("prefetch", "order", ("BRR401", "BRR405", "BRR408"), (
                 ("WORKERS = 0", "WORKERS = 1 if TINY else 8"),
                 ("import torch\n", "import torch\n\nfrom gobrrr.data import prefetch\n"),
                 ("num_workers=WORKERS, ", 'num_workers=WORKERS, pin_memory=DEVICE != "cpu", '),
                 ("in loader:", 'in prefetch(loader, DEVICE) if DEVICE != "cpu" else loader:'),
             )),)),
    Ordinary("checked_encoder", ("BRR501",), fix=(
        ("            if not torch.isfinite(weights.grad).all():  # <- BRR501\n"
         "                weights.grad.zero_()\n", ""),
        ("= max(largest, ", "= torch.maximum(largest, "),
    )),
    Ordinary("click_rates", ("BRR502", "BRR501", "BRR301"), fix=(
        ("for _ in range(8)]",
         'for _ in range(8)]\n    days = days if DEVICE == "cpu" else [day.pin_memory() for day in days]'),
        ("columns = [column.contiguous().to(DEVICE) for column in days[step % 8].unbind(1)]",
         "fields = days[step % 8].to(DEVICE, non_blocking=True)"),
        ("model(torch.stack(columns, 1))", "model(fields)"),
    )),
    Ordinary("speech_gru", ("BRR504", "BRR301", "BRR302"), healthy_steps=2000, fix=(
        ("rnn, head = Cell(WIDTH, WIDTH), ", "rnn, head = nn.GRU(WIDTH, WIDTH, batch_first=True), "),
        ("model = nn.Sequential(rnn, head).to(DEVICE)", "model = nn.ModuleList([rnn, head]).to(DEVICE)"),
        ("model(x).flatten(0, 1)", "head(rnn(x)[0]).flatten(0, 1)"),
    )),
    Ordinary("many_weights", ("BRR208",), fix=(("foreach=False", "fused=True"),), healthy_steps=500),
    Ordinary("bf16_words", ("BRR109",), fix=(("1001 if TINY else 50257", "1024 if TINY else 50304"),)),
    Ordinary("ragged_rows", ("BRR803", "BRR801", "BRR201"), statistic="mean", seconds=80,
             fix=(("dynamic=False", "dynamic=True"),)),
    Ordinary("tidy_unet", ("BRR602", "BRR306", "BRR501"), fix=(
        ("        gc.collect()  # <- BRR306\n        torch.cuda.empty_cache()  # <- BRR602\n", ""),
    )),
    Ordinary("host_metrics", ("BRR302", "BRR505", "BRR501"), fix=(
        ("EVERY = 1\n", "EVERY = 50\n"),
    ), healthy_steps=800),
)  # fmt: skip
BY_NAME = {each.name: each for each in TWELVE}
