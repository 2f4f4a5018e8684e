"""Planted illnesses for any device: which program has which, and the text that mends it.

A program is one file, programs/NAME.py, and takes DEVICE and TINY from the environment. Its guilty lines carry a
trailing comment `# <- BRRxxx`; its healthy twin is the same file with a text replaced. Sizes are those of one H100:
steps of 3 to 50 ms, memory below 20 GB, a run below 25 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.setting import KEPT
from tests.planted.catalogue import Illness

PROGRAMS = Path(__file__).with_name("programs")
WRITTEN = KEPT / "programs"
"""Where the twins are written as sick.py and healthy.py, the names by which the bench of planted programs scores."""
ILL_FROM = 1.1
"""Sick step over healthy step, by the device's own clock: nobody else makes its steps differ by 10 %."""


@dataclass(frozen=True)
class Plant(Illness):
    """`fix`: texts to replace, each there exactly once."""

    fix: tuple[tuple[str, str], ...] = ()
    folder: Path = PROGRAMS
    healthy_steps: int = 0
    """Of the twin, where it is so much faster that gobrrr would see too little of it."""

    def script(self, who: str) -> Path:
        """Path of the `sick` or `healthy` program, written now."""
        path = WRITTEN.resolve() / self.name / f"{who}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.source(who), encoding="utf-8")
        return path

    def source(self, who: str) -> str:
        """Its text."""
        text = (self.folder / f"{self.name}.py").read_text(encoding="utf-8")
        return text if who == "sick" else self.mended(self.fix)

    def mended(self, fix: tuple[tuple[str, str], ...]) -> str:
        """Its text with `fix` in place. Raises ValueError where a text to replace is not there exactly once."""
        text = self.source("sick")
        steps = (('"--steps", type=int, default=', f'"--steps", type=int, default={self.healthy_steps} or '),)
        for old, new in (*fix, *(steps if self.healthy_steps else ())):
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: {old!r} is there {text.count(old)} times")
            text = text.replace(old, new)
        return text

    def is_ill(self, ratio: float) -> bool:
        """Whether sick over healthy is an illness on this device."""
        return ratio >= ILL_FROM


PLANTS = (
    Plant("sync_item", ("BRR501",), fix=((".grad.norm().item())", ".grad.norm())"),)),
    Plant(
        "pageable_copies", ("BRR502", "BRR501"), healthy_steps=800,
        fix=(("SIDE, SIDE)\n", "SIDE, SIDE).to(DEVICE)\n"),
             ("x = pictures[step % 8].to(DEVICE)", "x = pictures[step % 8]")),
    ),
    Plant(
        "launch_bound", ("BRR504", "BRR301"), healthy_steps=1500,
        fix=(("torch.stack([rows @ each for rows, each in zip(x.unbind(), weights.unbind())])",
              "torch.bmm(x, weights)"),),
    ),
    Plant("fp32_products", ("BRR110", "BRR102"), fix=(('"highest"', '"high"'),), healthy_steps=1200),
    Plant(
        "hand_made_attention", ("BRR105",), healthy_steps=800,
        fix=(
            ("scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5  # <- BRR105",
             "mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)"),
            ('        scores = scores.masked_fill(self.hidden, float("-inf"))\n', ""),
            ("        mixed = scores.softmax(-1) @ value  # <- BRR105\n", ""),
        ),
    ),
    Plant("off_by_one", ("BRR109",),
          fix=(("5001 if TINY else 50257", "5056 if TINY else 50304"),
               ("63 if TINY else 1023", "64 if TINY else 1024"))),
    Plant("allocator_calls", ("BRR602", "BRR501"), fix=(("        torch.cuda.empty_cache()  # <- BRR602\n", ""),)),
    Plant("prints_metrics", ("BRR305", "BRR501", "BRR302"), fix=(("EVERY = 1\n", "EVERY = 50\n"),), healthy_steps=800),
    Plant("small_batches", ("BRR504", "BRR301"),
          fix=(("4 if TINY else 256", "32 if TINY else 8192"),), healthy_steps=1000),
    Plant("unpinned_loader", ("BRR502", "BRR501"), fix=(("PINNED = False", "PINNED = True"),)),
    Plant("graph_breaks", ("BRR802",),
          fix=(('            log.debug("a wave further")  # <- BRR802\n', ""),), healthy_steps=2000),
    Plant("optimizer_loop", ("BRR208",), fix=(("foreach=False", "fused=True"),)),
    Plant("layout_flips", ("BRR204",), fix=(("            x = x.transpose(0, 1).contiguous()  # <- BRR204\n", ""),)),
    Plant(
        "back_and_forth", ("BRR502", "BRR501", "BRR302"), healthy_steps=800,
        fix=(("    features = features.cpu()  # <- BRR502\n", ""), ("return features.to(DEVICE)", "return features")),
    ),
)  # fmt: skip
