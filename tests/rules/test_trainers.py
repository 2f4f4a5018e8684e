"""Findings in a library's loop name the argument that its user can set."""

from __future__ import annotations

import dataclasses
import re
import sys
import types
from pathlib import Path

import pytest
from msgspec.structs import replace

from gobrrr.capture.facts.program_facts import TRAINERS, trainer_facts
from gobrrr.recording.model.facts import Settings, Span
from gobrrr.rules import load
from gobrrr.rules.model.finding import Finding, Quantity, Saving
from gobrrr.rules.verdict.trainer_arguments import ARGUMENTS, NAMES, with_argument

PADDED = Finding("BRR409", "padding", "data", "warning", Saving(0, 1, 2), "Most is padding.", advice="Pad less.")


TRAIN, MAKES, PADS = Span("train.py", 40, "<module>"), Span("train.py", 30, ""), Span("train.py", 12, "")
RUN = Settings(trainer="transformers", trainer_span=TRAIN, arguments_span=MAKES)


def test_the_advice_names_the_argument_of_the_trainer_that_ran() -> None:
    said = with_argument(PADDED, RUN).advice
    assert said.startswith("In Hugging Face TrainingArguments: padding=True instead of padding='max_length'")
    assert said.endswith(". Pad less."), "a report in brief shows the first line"
    assert with_argument(PADDED, Settings()) is PADDED
    assert with_argument(PADDED, Settings(trainer="unheard-of")) is PADDED


def test_who_pads_to_the_longest_already_is_told_the_other_argument_alone() -> None:
    def told(longest: float, trainer: str = "transformers") -> str:
        evidence = {"saved_by_longest": Quantity(longest, "ns"), "saved_by_bucketing": Quantity(9e6, "ns")}
        return with_argument(replace(PADDED, evidence=evidence), replace(RUN, trainer=trainer)).advice

    assert told(8e6).startswith("In Hugging Face TrainingArguments: padding=True")
    assert told(0.0).startswith(
        "In Hugging Face TrainingArguments: train_sampling_strategy='group_by_length'. Pad less"
    )
    assert told(0.0, "lightning") == "Pad less." != told(8e6, "lightning")


def test_the_place_is_where_the_argument_is_set_and_not_where_the_trainer_runs() -> None:
    slow = Finding("BRR102", "fp32", "compute", "warning", Saving(0, 1, 2), "Slow.", where=(TRAIN,))
    assert with_argument(slow, RUN).where == (MAKES,)
    given = replace(RUN, argument_lines={"output_dir": 31, "bf16": 33})
    assert with_argument(slow, given).where == (Span("train.py", 33, ""),)
    own = replace(slow, where=(Span("train.py", 7, "Net.forward"), TRAIN))
    assert with_argument(own, RUN).where == own.where, "a line of the user's own says more"
    assert with_argument(slow, replace(RUN, arguments_span=None)).where == (TRAIN,)
    assert with_argument(replace(slow, code="BRR999"), RUN).where == (TRAIN,), "no argument helps there"


def test_a_loaders_argument_is_not_looked_for_where_the_trainer_is_made() -> None:
    slow = Finding("BRR405", "too-few-workers", "data", "warning", Saving(0, 1, 2), "Waits.", where=(TRAIN,))
    lightning = replace(RUN, trainer="lightning")
    assert with_argument(slow, lightning).where == (TRAIN,)
    assert with_argument(slow, RUN).where == (MAKES,), "TrainingArguments has dataloader_num_workers"
    assert with_argument(replace(slow, code="BRR102"), lightning).where == (MAKES,), "Trainer(precision=...)"


def test_padding_points_at_the_call_that_pads() -> None:
    loader = replace(PADDED, where=(Span("train.py", 50, "main"),))
    assert with_argument(loader, Settings(padding_span=PADS)).where == (PADS,)
    assert with_argument(loader, RUN).where == loader.where


def test_where_a_trainer_is_called_and_given_its_arguments(tmp_path: Path) -> None:
    """A script like everybody's, with a library's trainer played by a module of that name."""
    trainer = types.ModuleType("transformers.trainer")
    exec("class Trainer:\n    def train(self):\n        return self.step()\n", vars(trainer))
    script = tmp_path / "script.py"
    script.write_text(
        "args = SomeTrainingArguments(output_dir='out', eval_steps=5)\n"
        "rows = tokenizer(texts, truncation=True,\n"
        "                 padding='max_length')\n"
        "trainer = OurTrainer(args)\n"
        "found = trainer.train()\n"
    )

    class SomeTrainingArguments:
        def __init__(self, output_dir: str, eval_steps: int) -> None: ...

    class OurTrainer(trainer.Trainer):
        def __init__(self, args: object) -> None:
            self.args = args

        def step(self) -> dict[str, object]:
            return trainer_facts(sys._getframe(), [str(script)])

    names = {"SomeTrainingArguments": SomeTrainingArguments, "OurTrainer": OurTrainer}
    names |= {"tokenizer": lambda *_, **__: None, "texts": []}
    exec(compile(script.read_text(), str(script), "exec"), names)
    found = names["found"]
    assert found["trainer"] == "transformers" and found["argument_lines"] == {"output_dir": 1, "eval_steps": 1}
    assert [found[name]["line"] for name in ("trainer_span", "arguments_span", "padding_span")] == [5, 1, 3]


def test_the_table_is_of_rules_and_trainers_that_there_are() -> None:
    assert set(ARGUMENTS) <= set(load())
    assert {trainer for each in ARGUMENTS.values() for trainer in each} <= set(NAMES)
    assert set(TRAINERS.values()) == set(NAMES)


def test_the_outermost_trainer_on_the_stack_is_the_one_that_runs() -> None:
    def called_from(*names: str) -> str:
        call = lambda: trainer_facts(sys._getframe(), [])["trainer"]  # noqa: E731
        for name in names:
            module = types.ModuleType(name)
            exec("def run(inner):\n    return inner()", vars(module))
            call = (lambda run, inner: lambda: run(inner))(module.run, call)
        return call()

    assert called_from("accelerate.optimizer", "transformers.trainer") == "transformers"
    assert called_from("accelerate.optimizer") == "accelerate"
    assert called_from("somebody.trainer") == ""


def test_hugging_faces_arguments_exist() -> None:
    arguments = pytest.importorskip("transformers").TrainingArguments
    fields = {field.name for field in dataclasses.fields(arguments)}
    values = {"adamw_torch_fused", "group_by_length"}
    texts = (each.get("transformers", "").rpartition("; ")[2] for each in ARGUMENTS.values())
    assert {name for text in texts for name in re.findall(r"\b[a-z0-9]+(?:_[a-z0-9]+)+\b", text)} - fields <= values
