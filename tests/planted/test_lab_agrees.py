"""What an experiment of the lab calls slow, `gobrrr run` names first, at its line, in a program as users write it.

An experiment names its program of tests/planted and the code (`finding`); each is run here as it is. That the mended
twin is not accused of it is tests/planted/test_planted.py's, which runs both of every program.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.planted_scoring import findings, judge_sick
from benchmarks.planted_truth import measure
from gobrrr_lab import load
from tests.planted.catalogue import BY_NAME
from tests.planted.test_planted import diagnose, skip_unless_possible

EXPERIMENTS = load()
ILL = {name: one.finding for name, one in EXPERIMENTS.items() if one.finding is not None}

NO_ILLNESS = {
    "op_table": "a table: no arm is slow",
    "flops_and_time": "a share: no arm is slow",
    "unsynchronised_clock": "a wrong clock, which costs nothing; needs an accelerator",
    "cuda_graphs": "needs an accelerator",
    "streams": "needs an accelerator",
    "counted_flops": "a count: no arm is slow",
    "strassen": "the library's product is the slow arm: nobody's mistake, and 4 % either way",
    "aligned_sizes": "1.16 times for the head alone, far less of a step: under the 1.3 from which an illness counts",
    "waves": "on paper",
    "zeros_multiply": "1.01 times here, and nobody chooses the numbers",
    "roofline_ops": "a bound: no arm is slow",
    "three_derivatives": "of digits, not of time",
    "gradient_descent": "of convergence, not of time",
    "forward_and_reverse": "forward mode of many inputs: steps of torch.func are watched, no rule counts their passes",
    "static_graph": "eager is not a mistake; what of it is, is swish_by_hand's and norms_by_themselves'",
    "number_formats": "of digits, not of time",
    "loss_scaling": "of digits, not of time",
    "bytes_per_parameter": "a count of bytes",
    "int8_layers": "fp32 is not a mistake: 8 bits change the answers",
    "recomputed_norm": "of bytes: recomputing is the slower arm, and checkpointed_blocks has that",
    "jpeg_decoding": "needs Pillow, which tests do not install; tests/rules/test_rules_pictures.py has the rule",
    "pinned_copies": "needs an accelerator",
    "sparse_weights": "a dense kernel is not slower for the zeros in it",
    "low_rank": "another model",
    "distillation": "another model",
    "latency_budget": "a prediction: no arm is slow",
    "all_reduce": "which way gloo sums is not the program's to choose",
    "joules": "of energy, not of time",
}  # fmt: skip
"""Experiments that no user's program can be ill with, or none that a CPU shows, and why."""


def test_every_experiment_names_its_program_or_says_why_it_has_none() -> None:
    assert not ILL.keys() & NO_ILLNESS.keys()
    assert ILL.keys() | NO_ILLNESS.keys() == EXPERIMENTS.keys()
    assert all(program in BY_NAME and code in BY_NAME[program].codes for program, code in ILL.values())


@cache
def reported(program: str, folder: Path) -> dict[str, Any]:
    """The report of `gobrrr run` on the program; several experiments may name the same one."""
    return diagnose(BY_NAME[program], "sick", folder)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab")


@pytest.mark.slow
@pytest.mark.parametrize("name", ILL)
def test_the_first_finding_is_what_the_experiment_says(name: str, folder: Path) -> None:
    program, code = ILL[name]
    illness = BY_NAME[program]
    skip_unless_possible(illness)
    (folder / program).mkdir(exist_ok=True)
    report = reported(program, folder / program)
    told = judge_sick(report, illness.codes, illness.guilty_lines(), saving_ns=0)
    if not told.named and not (truth := measure(illness, rounds=2)).is_ill:
        pytest.skip(f"no illness on this machine: the twin is {truth.ratio:.3f} times as fast")
    assert told.named and told.placed, (code, [(f["code"], f["where"][:1]) for f in findings(report)])
