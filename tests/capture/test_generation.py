"""Tokens of generate() are noted while the program runs, and nothing of it stays on the stack or in its class."""

import importlib.util
import sys
import threading
import traceback

import pytest
import torch

import gobrrr
from gobrrr.capture.hooks import generation
from gobrrr.capture.hooks.lookup import Patches
from gobrrr.recording.run_folder.run import load_run
from tests.support.generation import GenerationMixin, Writer, prompts, stands_in, writer


@pytest.fixture
def seen(monkeypatch):
    """(begins, shapes) as they are told while hooks stand."""
    stands_in(monkeypatch)
    begins, shapes, patches = [], [], Patches()
    generation.watch_generation(begins.append, lambda ids, _: shapes.append(tuple(ids.shape)), patches)
    yield begins, shapes
    patches.take_out()
    assert not hasattr(vars(GenerationMixin)["generate"], "seen")


def test_each_token_is_told_with_rows_and_length(seen):
    begins, shapes = seen
    model, prompt = writer(), prompts(1)[0].repeat(3, 1)
    made = model.generate(prompt, max_new_tokens=5)
    assert begins == [model]
    assert shapes == [(3, length) for length in range(prompt.shape[1], made.shape[1] + 1)]


def guessed(model, ids):
    asks = {"__name__": "transformers.generation.candidate_generator"}
    exec("def candidates(model, ids):\n    return model.generate(ids, max_new_tokens=2)", asks)
    return asks["candidates"](model, ids)


def test_an_assistants_own_call_is_not_the_programs(seen):
    begins, shapes = seen
    guessed(writer(), prompts(1)[0])
    assert (begins, shapes) == ([], [])


@pytest.mark.parametrize(("caller", "guess"), [("candidate_generator", True), ("utils", False)])
def test_a_guess_is_known_by_who_calls(caller, guess):
    asks = {"__name__": f"transformers.generation.{caller}"}
    exec("def sample(told):\n    return told()", asks)
    assert asks["sample"](generation.is_guess) == guess
    assert not generation.is_guess()


def test_guesses_are_no_steps(monkeypatch, tmp_path):
    stands_in(monkeypatch)
    asks = {"__name__": "transformers.generation.candidate_generator"}
    exec("import torch\ndef guess(assistant):\n    assistant(torch.ones(1, 4).long(), torch.ones(1, 4))", asks)

    class Assisted(Writer):
        def _has_unfinished_sequences(self, *given, **named):
            asks["guess"](assistant)
            return super()._has_unfinished_sequences(*given, **named)

    torch.manual_seed(5)
    assistant, model, counted = writer(), Assisted().eval(), []
    model.register_forward_hook(lambda *_: counted.append(1))
    with gobrrr.watch(tmp_path, show=False):
        for prompt in prompts(30):
            model.generate(prompt, max_new_tokens=4)
        torch.ao.quantization.MinMaxObserver()(torch.ones(3))
        for _ in range(90):  # alone it is a model like others
            assistant(torch.ones(1, 4).long(), torch.ones(1, 4))
    (recording,) = load_run(tmp_path)
    first, second = sorted(recording.loops, key=lambda loop: loop.number)
    assert 0.9 * len(counted) < len(first.steps) <= len(counted)
    assert (first.number, second.number) == (0, 1) and 80 < len(second.steps) <= 90


def test_reading_ahead_is_aside_in_its_own_thread_alone(seen, monkeypatch):
    import gobrrr.data.prompts as module

    model, told = writer(), []
    monkeypatch.setattr(module, "reading_ahead", threading.get_ident())
    other = threading.Thread(target=lambda: told.append(generation.is_aside(model)))
    other.start()
    other.join()
    assert generation.is_aside(model) and told == [False]


def test_observers_of_weights_are_no_models(seen):
    observer = torch.ao.quantization.MinMaxObserver()
    assert generation.is_aside(observer) and not generation.is_aside(torch.nn.Linear(2, 2))


def test_a_traceback_names_nobody_but_the_program(seen):
    model = writer()
    model.forward = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError) as error:
        model.generate(prompts(1)[0])
    assert not [each for each in traceback.extract_tb(error.tb) if "gobrrr/capture" in each.filename]


def test_it_is_watched_once_the_program_imports_it(tmp_path, monkeypatch):
    for name in ("transformers", "transformers/generation"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    text = "class GenerationMixin:\n    def generate(self): ...\n"
    (tmp_path / "transformers/generation/utils.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("transformers", "transformers.generation", "transformers.generation.utils"):
        monkeypatch.setitem(sys.modules, name, None)  # put back at the end
        del sys.modules[name]
    told, patches = [], Patches()
    generation.awaited(lambda: told.append(generation.mixin()), patches)
    assert importlib.util.find_spec("transformers.generation.utils") is not None and told == []  # asked for alone
    utils = __import__("transformers.generation.utils", fromlist=["GenerationMixin"])
    assert told == [utils.GenerationMixin]
    patches.take_out()
    for name in ("transformers", "transformers.generation", "transformers.generation.utils"):
        monkeypatch.delitem(__import__("sys").modules, name)
