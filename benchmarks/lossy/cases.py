"""The twelve: each with the gate that its user would write, and a command line for as little of it as can be run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gobrrr.trial.gate.rule import Gate, parse

PROGRAMS = Path(__file__).parent / "programs"


class Case(NamedTuple):
    """One program. `loads`: functions of it that only read data, whose results are kept from run to run."""

    name: str
    accept: str
    little: tuple[str, ...]
    loads: tuple[str, ...]
    measure: str = ""

    @property
    def gate(self) -> Gate:
        """Its gate, as gobrrr reads it."""
        return parse(self.accept, self.measure)

    @property
    def script(self) -> Path:
        """Its source."""
        return PROGRAMS / f"{self.name}.py"


CASES = (
    Case("resnet", "accuracy >= -1", ("--images", "32"), ("digits",)),
    Case("mobilenet", "error <= +1", ("1",), ("get_data",)),
    Case("vgg", "Acc@1 >= -1%", ("-n", "32"), ("load_digits",)),
    Case("mlp", "f1 >= -1%", ("1",), ("load_data",), "metrics.json:test.f1"),
    Case("bert", "accuracy >= -2%", ("--batches", "1", "--batch-size", "16"), ("read",)),
    Case("vit", "accuracy >= -1%", ("--num_passes", "1", "--max_eval_samples", "32"), ("prepare",),
         r"eval_accuracy\s*=\s*(\S+)"),
    Case("gpt2", "perplexity <= +1%", ("--batches", "1"), ("corpus",)),
    Case("whisper", "note error rate <= +1", ("1",), ()),
    Case("t5", "eval_perplexity <= +1%", ("--batches", "1"), ("read",)),
    Case("recommender", "HR@10 >= -2%", ("40",), ("interactions",)),
    Case("lstm", "bpc <= +1%", ("1",), ("split",)),
    Case("diffusion", "mse <= +2%", ("--patches", "50"), ("load_sample_images",), r"mse=(\S+)"),
)  # fmt: skip
BY_NAME = {case.name: case for case in CASES}
