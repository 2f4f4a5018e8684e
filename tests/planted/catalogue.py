"""The planted illnesses: which program has which, on which line, and how its cost is to be read.

Every entry is a folder with `sick.py`, a plain program, and `healthy.patch`, its mended lines as `diff -U1` writes
them; the twin is the patched program without its marks. The guilty lines carry such a mark, a trailing comment
`# <- BRRxxx`; no tool reads comments, so it gives nothing away.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
TWINS = HERE.parents[1] / ".gobrrr" / "planted"
"""Where the healthy twins are written."""
MARK = re.compile(r" *# <- (BRR\d{3})\b")
ILL_FROM = 1.3
"""Sick step over healthy step from which an illness counts: A/A runs on shared machines reach 1.1."""


@dataclass(frozen=True)
class Illness:
    """One planted program. `codes` are the findings that name its illness, the one to be expected first."""

    name: str
    codes: tuple[str, ...]
    kind: str = "training"
    """training: a step is an optimizer update; inference: a step is a top-level forward; backward: a
    backward pass, of a program without an optimizer."""
    statistic: str = "median"
    """mean where the cost falls on few steps: ends of epochs, rare samples."""
    conditional: str = ""
    """What the hardware must be like for this to be an illness; empty where it is one everywhere."""
    bytes_illness: bool = False
    """It costs bytes that grow with the steps; its time may not show."""
    needs: tuple[str, ...] = ()
    """Executables that the program cannot do without."""
    modules: tuple[str, ...] = ()
    """Packages that it imports beside torch and NumPy."""
    steps_in_one: int = 1
    """Steps of the sick program that one of its twin does."""
    num_steps: int | None = None
    """Fewer steps than the program's own default, for a quick look."""

    @property
    def code(self) -> str:
        """The code that is expected first."""
        return self.codes[0]

    def script(self, who: str) -> Path:
        """Path of the `sick` program, or of the `healthy` one, written now."""
        sick, twin = HERE / self.name / "sick.py", TWINS / self.name / "healthy.py"
        if who == "sick":
            return sick
        command = ["patch", "-F0", "-r", "-", "-o", "-", str(sick), str(sick.with_name("healthy.patch"))]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or done.stderr.count("\n") != 1:  # it tells of lines that are not where they were
            raise ValueError(f"{self.name}: {done.stderr}")
        twin.parent.mkdir(parents=True, exist_ok=True)
        draft = twin.with_suffix(f".{os.getpid()}")  # another process may be reading the twin
        draft.write_text(MARK.sub("", done.stdout))
        return draft.replace(twin)

    def guilty_lines(self) -> tuple[int, ...]:
        """Line numbers in sick.py that carry the mark."""
        lines = self.script("sick").read_text().splitlines()
        return tuple(number for number, line in enumerate(lines, 1) if MARK.search(line))

    def absent(self) -> list[str]:
        """What the program needs and this machine lacks."""
        tools = [tool for tool in self.needs if shutil.which(tool) is None]
        return tools + [module for module in self.modules if importlib.util.find_spec(module) is None]

    def is_ill(self, ratio: float) -> bool:
        """Whether sick over healthy, as measured on this machine, is an illness here."""
        return self.bytes_illness or ratio >= ILL_FROM


CATALOGUE = (
    # Compute: work that need not be done, or not so dearly.
    Illness("float64_from_numpy", ("BRR101",)),
    Illness("fp32_matmul", ("BRR102",), kind="inference", conditional="bf16 products are faster than fp32"),
    Illness("half_on_cpu", ("BRR103",), kind="inference", conditional="fp16 products are slower than fp32"),
    Illness("slow_matmul_path", ("BRR104",), conditional="another library multiplies fp32 faster than the default"),
    Illness("hand_made_attention", ("BRR105",)),
    Illness("frozen_backbone", ("BRR106",)),
    Illness("evaluation_with_graph", ("BRR107",), kind="inference"),
    Illness("forward_twice", ("BRR108",)),
    Illness("checkpointed_blocks", ("BRR111",)),
    Illness("dropout_masks", ("BRR112",)),
    Illness("frozen_features", ("BRR113",)),
    # Bandwidth: bytes that need not move.
    Illness("hand_written_gelu", ("BRR201",)),
    Illness("repeated_multiplication", ("BRR201",), kind="inference"),
    Illness("swish_by_hand", ("BRR201",), kind="inference"),
    Illness("norm_by_hand", ("BRR201",)),
    Illness("epilogue_by_hand", ("BRR201",), kind="inference"),
    Illness("fresh_score_matrix", ("BRR202",), kind="inference"),
    Illness("logits_for_every_frame", ("BRR203",)),
    Illness("layout_flips", ("BRR204",)),
    Illness("weights_cast_each_call", ("BRR205",), kind="inference"),
    Illness("fp8_emulated", ("BRR205",), kind="inference"),
    Illness("dense_embedding_gradients", ("BRR206",)),
    Illness("zero_grad_writes_zeros", ("BRR207",)),
    Illness("loop_optimizer", ("BRR208",)),
    Illness("norms_by_themselves", ("BRR210",), kind="inference"),
    Illness("adam_by_hand", ("BRR209",), kind="backward"),
    Illness("adam_subclass", ("BRR209",)),
    Illness("decodes_anew", ("BRR314",), kind="inference"),
    # Overhead and host: everything around the operators.
    Illness("loop_over_samples", ("BRR301",)),
    Illness("cell_in_python", ("BRR301",)),
    Illness("small_batch", ("BRR301",)),
    Illness("serves_one_by_one", ("BRR313",), kind="inference", steps_in_one=32),
    Illness("python_metric", ("BRR302",)),
    Illness("deepcopy_every_step", ("BRR303",)),
    Illness("checkpoint_every_step", ("BRR304",)),
    Illness("trainer_saves_every_step", ("BRR304",), modules=("transformers", "accelerate")),
    Illness("prints_tensors", ("BRR305",)),
    Illness("collects_garbage", ("BRR306",)),
    Illness("anomaly_mode", ("BRR307",)),
    Illness("deterministic_mode", ("BRR308",), kind="inference"),
    Illness("single_thread", ("BRR309",), conditional="two threads get more than one"),
    Illness("too_many_threads", ("BRR309",), conditional="32 threads get in each other's way"),
    Illness("second_model", ("BRR311",)),
    Illness("checked_distributions", ("BRR316",)),
    Illness("evaluates_each_step", ("BRR312",)),
    Illness("waits_for_simulator", ("BRR315",)),
    Illness("denormals", ("BRR310",), kind="inference", conditional="arithmetic on denormals is slow"),
    # Data: waiting for the batch.
    Illness("python_transform", ("BRR401",)),
    Illness("tokenises_each_epoch", ("BRR401",)),
    Illness("full_size_jpeg", ("BRR401",), modules=("PIL",)),
    Illness("bytes_as_floats", ("BRR401",)),
    Illness("resize_chain", ("BRR401",), modules=("PIL",)),
    Illness("slow_storage", ("BRR402",)),
    Illness("small_files", ("BRR401",)),
    Illness("slow_collate", ("BRR403",)),
    Illness("workers_each_epoch", ("BRR404",), statistic="mean"),
    Illness("no_workers", ("BRR405", "BRR402")),
    Illness("too_many_workers", ("BRR406", "BRR404"), statistic="mean"),
    Illness("one_slow_sample", ("BRR407",), statistic="mean"),
    Illness("item_by_item", ("BRR408",)),
    Illness("padded_to_512", ("BRR409",)),
    Illness("weighted_draws", ("BRR410",)),
    Illness("boxes_in_lists", ("BRR411",)),
    Illness("arrays_through_a_pipe", ("BRR411",)),
    # Many ranks.
    Illness("sums_every_micro_step", ("BRR703",)),
    # Memory and compile.
    Illness("graphs_kept", ("BRR601",), bytes_illness=True),
    Illness("annotations_in_a_list", ("BRR604",), bytes_illness=True),
    Illness("recompiles", ("BRR801",)),
    Illness("graph_breaks", ("BRR802",), needs=("g++",)),
)

BY_NAME = {illness.name: illness for illness in CATALOGUE}
