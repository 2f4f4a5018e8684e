"""Findings in a library's loop name the argument that its user can set."""

from __future__ import annotations

import dataclasses
import re
import sys
import types

import pytest

from gobrrr.capture import trainers as running
from gobrrr.rules import load
from gobrrr.rules.model import Finding, Saving
from gobrrr.rules.trainers import ARGUMENTS, NAMES, with_argument

PADDED = Finding("BRR409", "padding", "data", "warning", Saving(0, 1, 2), "Most is padding.", advice="Pad less.")


def test_the_advice_names_the_argument_of_the_trainer_that_ran() -> None:
    said = with_argument(PADDED, "transformers").advice
    assert said.startswith("Pad less. In Hugging Face TrainingArguments: padding=True instead of padding='max_length'")
    assert with_argument(PADDED, "") is PADDED and with_argument(PADDED, "unheard-of") is PADDED


def test_the_table_is_of_rules_and_trainers_that_there_are() -> None:
    assert set(ARGUMENTS) <= set(load())
    assert {trainer for each in ARGUMENTS.values() for trainer in each} <= set(NAMES)
    assert set(running.KNOWN.values()) == set(NAMES)


def test_the_outermost_trainer_on_the_stack_is_the_one_that_runs() -> None:
    def called_from(*names: str) -> str:
        call = lambda: running.running(sys._getframe())  # noqa: E731
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
