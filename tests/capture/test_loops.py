"""Steps are found in event streams of every kind of program: what ends a step, and of which loop."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gobrrr.capture.session.recorder import PATIENCE_THREADS, Recorder
from gobrrr.capture.steps.loops import (
    LONGEST,
    PATIENCE_DATA,
    PATIENCE_INFERENCE,
    PATIENCE_TRAINING,
    RECENT_FORWARDS,
    RUNS,
    STALE,
    Loops,
    Turns,
)
from gobrrr.recording.model.event_kinds import BACKWARDS, BATCHES, EXPLICIT, FORWARDS, REPLAYS, UPDATES

Loop = tuple[int, int]
INFERENCE, TRAINING = 1, 3  # flags: training mode; with gradients


def after(ends: Iterable[Loop | None]) -> Counter[Loop]:
    return Counter(end for end in ends if end is not None)


def updates(loops: Loops, *rounds: Iterable[int]) -> list[Loop | None]:
    return [loops.update(optimizer) for round_ in rounds for optimizer in round_]


def test_one_optimizer_ends_a_step_with_every_update() -> None:
    assert after(updates(Loops(), [0] * 300)) == {(UPDATES, 0): 300}


@pytest.mark.parametrize("count", range(2, 9))
def test_optimizers_in_turn_make_one_step_per_round_however_long_they_run(count: int) -> None:
    """SAC has an actor, two critics and a temperature; 64 updates are no whole number of rounds of three."""
    loops = Loops()
    updates(loops, range(count))
    assert after(updates(loops, *[range(count)] * 200)) == {(UPDATES, count - 1): 200}


@pytest.mark.parametrize("count", [50, 64, 65, 100, 300])
def test_an_optimizer_for_every_weight_is_one_step_for_all(count: int) -> None:
    """More than the turns that are looked at for those who take turns; in the first round all of them are new."""
    loops, ends = Loops(), []
    for _ in range(20):
        ends += [loops.forward(0, TRAINING), loops.backward(), *updates(loops, range(count))]
    assert after(ends) == {(UPDATES, 0): 1, (UPDATES, count - 1): 19}


def test_optimizers_that_never_come_again_take_no_memory() -> None:
    turns = Turns(4)
    for who in range(5000):
        turns.add(who)
    assert turns.full and len(turns.counts) == LONGEST


@pytest.mark.parametrize("ratio", [2, 5, 20])
def test_a_gan_makes_one_step_per_update_of_its_generator(ratio: int) -> None:
    discriminator, generator = 0, 1
    loops = Loops()
    round_ = [discriminator] * ratio + [generator]
    updates(loops, *[round_] * 3)
    assert after(updates(loops, *[round_] * 100)) == {(UPDATES, generator): 100}


def test_the_generator_may_come_first() -> None:
    loops = Loops()
    updates(loops, *[[0, 1, 1, 1]] * 5)
    assert after(updates(loops, *[[0, 1, 1, 1]] * 100)) == {(UPDATES, 0): 100}


def test_a_second_phase_with_another_optimizer_has_its_own_steps_at_once() -> None:
    loops = Loops()
    updates(loops, [0] * 500)
    assert after(updates(loops, [1] * 100)) == {(UPDATES, 1): 100}
    assert after(updates(loops, [0] * 300))[(UPDATES, 0)] >= 300 - STALE, "the other is soon forgotten"


@pytest.mark.parametrize("micro_steps", [1, 4, 32])
def test_accumulation_makes_no_steps_of_its_forwards(micro_steps: int) -> None:
    loops = Loops()
    for _ in range(20):
        assert not after(loops.forward(module, TRAINING) for _ in range(micro_steps) for module in (0, 1))
        assert loops.update(0) == (UPDATES, 0)


def test_a_long_accumulation_is_known_after_its_first_update() -> None:
    loops = Loops()
    assert after(loops.forward(0, TRAINING) for _ in range(100)) == {(FORWARDS, 0): 100 - PATIENCE_TRAINING}
    loops.update(0)
    for _ in range(5):
        assert not after(loops.forward(0, TRAINING) for _ in range(100))
        loops.update(0)


def test_evaluation_between_epochs_is_a_loop_of_its_own() -> None:
    loops = Loops()
    for _ in range(3):
        assert after(updates(loops, [0] * 50)) == {(UPDATES, 0): 50}
        assert after(loops.forward(7, INFERENCE) for _ in range(20)) == {(FORWARDS, 7): 20 - PATIENCE_INFERENCE}


@pytest.mark.parametrize("modules", [(0,), (0, 1), (0, 1, 2)])
def test_inference_steps_begin_with_the_first_module_of_a_round(modules: tuple[int, ...]) -> None:
    """A model and its criterion in an evaluation loop; an encoder and a decoder."""
    loops = Loops()
    ends = [[loops.forward(module, INFERENCE) for module in modules] for _ in range(1000)]
    for round_ in ends[PATIENCE_INFERENCE + 1 :]:
        assert round_ == [(FORWARDS, 0), *[None] * (len(modules) - 1)]


def test_a_decoder_is_called_often_per_call_of_its_encoder() -> None:
    loops = Loops()
    calls = [0, *[1] * 50]
    ends = [loops.forward(module, INFERENCE) for _ in range(30) for module in calls]
    assert after(ends) == {(FORWARDS, 0): 30 - PATIENCE_INFERENCE}


@pytest.mark.parametrize("tokens", [2, 30])
def test_an_encoder_that_lies_in_the_model_is_no_step_of_its_own(tokens: int) -> None:
    """generate() of an encoder and decoder calls the encoder by itself, then the whole model for every token."""
    encoder, model = 0, 1
    loops = Loops()
    loops.belongs(encoder, model)
    calls = [encoder, *[model] * tokens]
    ends = after(loops.forward(module, INFERENCE) for _ in range(30) for module in calls)
    assert ends.keys() == {(FORWARDS, model)}
    assert ends[FORWARDS, model] == 30 * tokens - PATIENCE_INFERENCE


def test_a_part_leads_once_its_whole_takes_part_no_more() -> None:
    """The whole model is tried once, and then its backbone makes features."""
    backbone, model = 0, 1
    loops = Loops()
    loops.belongs(backbone, model)
    loops.forward(model, INFERENCE)
    assert after(loops.forward(backbone, INFERENCE) for _ in range(1000))[FORWARDS, backbone] > 400


def test_a_module_called_once_does_not_hide_the_others_for_ever() -> None:
    """A text encoder that runs once, and a denoiser that runs a thousand times."""
    loops = Loops()
    loops.forward(0, INFERENCE)
    assert after(loops.forward(1, INFERENCE) for _ in range(1000))[(FORWARDS, 1)] > 400


def test_training_forwards_without_updates_count_after_patience() -> None:
    """Inference that forgot eval() and no_grad()."""
    loops = Loops()
    assert after(loops.forward(0, TRAINING) for _ in range(100)) == {(FORWARDS, 0): 100 - PATIENCE_TRAINING}


def test_batches_are_steps_where_nothing_else_comes() -> None:
    loops = Loops()
    assert after(loops.batch(0) for _ in range(200)) == {(BATCHES, 0): 200 - PATIENCE_DATA}


@pytest.mark.parametrize(
    "other",
    [lambda loops: loops.update(0), lambda loops: loops.forward(0, TRAINING), lambda loops: loops.replay(0)],
)
def test_batches_are_no_steps_beside_updates_forwards_or_replays(other: Callable[[Loops], object]) -> None:
    loops = Loops()
    for _ in range(500):
        assert loops.batch(0) is None
        other(loops)


@pytest.mark.parametrize("loaders", [1, 2, 3])
def test_epochs_of_a_functional_loop_are_one_loop(loaders: int) -> None:
    """Every epoch makes new iterators with new numbers; labelled and unlabelled batches are read in turn."""
    loops = Loops()
    ends = [
        loops.batch(loaders * epoch + loader) for epoch in range(10) for _ in range(100) for loader in range(loaders)
    ]
    found = after(ends)
    assert set(found) == {(BATCHES, 0)}
    assert 1000 - PATIENCE_DATA - 2 * 10 <= found[(BATCHES, 0)] <= 1000


def test_explicit_marks_silence_everything_else() -> None:
    loops = Loops()
    assert loops.update(0) == (UPDATES, 0)
    for _ in range(100):
        assert loops.explicit() == (EXPLICIT, 0)
        assert loops.update(0) is None
        assert loops.forward(0, INFERENCE) is None
        assert loops.batch(0) is None
        assert loops.replay(0) is None


def test_replays_of_a_graph_are_steps_once_its_warm_up_is_over() -> None:
    """Three updates before the capture, one in it, and a pass that the graph holds."""
    loops = Loops()
    updates(loops, [0] * 4)
    assert after(loops.replay(0) for _ in range(6000)) == {(REPLAYS, 0): 6000 - PATIENCE_TRAINING}


def test_where_nothing_can_be_updated_replays_are_not_waited_for_long() -> None:
    loops = Loops(optimizer_made=lambda: False)
    assert not after(loops.forward(0, INFERENCE) for _ in range(PATIENCE_INFERENCE))
    assert after(loops.replay(0) for _ in range(100)) == {(REPLAYS, 0): 100 - PATIENCE_INFERENCE}


@pytest.mark.parametrize("replays", [1, 2, 32, 300])
def test_replays_between_updates_are_part_of_the_step(replays: int) -> None:
    """A graph that computes gradients; a rollout of a policy: how long it is the first one tells."""
    loops = Loops()
    for number in range(20):
        ends = after(loops.replay(0) for _ in range(replays))
        assert not ends or not number
        assert loops.update(0) == (UPDATES, 0)


@pytest.mark.parametrize("replays", [40, 128])
def test_replays_before_the_forward_of_an_update_are_part_of_the_step_too(replays: int) -> None:
    """A rollout of a graphed policy, which is then trained as it is: the forward is behind the replays."""
    loops, ends = Loops(), list[Loop | None]()
    for _ in range(50):
        ends += [loops.replay(0) for _ in range(replays)]
        ends += [loops.forward(0, TRAINING), loops.backward(), loops.update(0)]
    assert after(ends) == {(REPLAYS, 0): replays - PATIENCE_TRAINING, (UPDATES, 0): 50}


def test_an_update_after_very_many_replays_is_none_of_theirs() -> None:
    """The last batch of an epoch, which is smaller and fits no graph."""
    loops = Loops()
    for _ in range(5):
        ends = after(loops.replay(0) for _ in range(5000))
        loops.update(0)
    assert ends == {(REPLAYS, 0): 5000 - RECENT_FORWARDS}


def test_replays_beside_forwards_are_part_of_their_step() -> None:
    loops = Loops(optimizer_made=lambda: False)
    ends = [end for _ in range(50) for end in (loops.forward(0, INFERENCE), loops.replay(0), loops.replay(1))]
    assert after(ends) == {(FORWARDS, 0): 50 - PATIENCE_INFERENCE}


def test_an_evaluation_between_replays_does_not_hide_them() -> None:
    loops = Loops()
    for _ in range(3):
        assert after(loops.replay(0) for _ in range(500)) == {(REPLAYS, 0): 500 - PATIENCE_TRAINING}
        assert after(loops.forward(7, INFERENCE) for _ in range(20)).keys() == {(FORWARDS, 7)}


def test_several_graphs_in_turn_make_one_step_per_round() -> None:
    loops = Loops()
    ends = [loops.replay(graph) for _ in range(100) for graph in (0, 1, 2, 2)]
    assert after(ends[4 * PATIENCE_TRAINING :]) == {(REPLAYS, 0): 100 - PATIENCE_TRAINING}


def rounds_of(graphs: Iterable[int]) -> Counter[Loop]:
    """Ends of steps where one line replays these, and nothing can be updated."""
    loops = Loops(optimizer_made=lambda: False)
    return after(loops.replay(0, graph) for graph in graphs)


@pytest.mark.parametrize("count", [2, 3, 100, LONGEST])
def test_graphs_of_one_place_in_a_fixed_order_are_one_step_per_round(count: int) -> None:
    """Layers in a for loop, or three graphs on a line; two shapes that take turns too: nothing tells them apart."""
    rounds = 4 * PATIENCE_INFERENCE
    assert 0 <= rounds - rounds_of([*range(count)] * rounds)[REPLAYS, 0] <= PATIENCE_INFERENCE


@pytest.mark.parametrize("others", [0.01, 0.5])
@pytest.mark.parametrize("count", [2, 3, 20])
def test_graphs_of_one_place_in_no_order_are_steps_each(count: int, others: float) -> None:
    """One for every shape of the input, some of them rare."""
    draws = random.Random(0)
    graphs = [draws.randrange(count) if draws.random() < others else 0 for _ in range(1000)]
    assert 1000 - rounds_of(graphs)[REPLAYS, 0] <= 2 * count + PATIENCE_INFERENCE


@pytest.mark.parametrize("before", [
    [0, 0, 0, 1, 1, 1, 2, 2, 2],  # a warm-up of each
    [3, 4, 5, 3, 4, 5],  # captured anew
    [0, 1, 2, 0, 1, 2, 0],  # an exception cut the round short
])  # fmt: skip
def test_rounds_of_one_place_are_told_after_what_is_none_of_them(before: list[int]) -> None:
    assert rounds_of([*before, *[0, 1, 2] * 100])[REPLAYS, 0] - rounds_of(before)[REPLAYS, 0] in range(98, 101)


def test_graphs_that_never_come_again_are_steps_in_the_end() -> None:
    assert rounds_of(range(2 * LONGEST)) == {(REPLAYS, 0): LONGEST}


def test_turns_forget_what_is_old() -> None:
    turns = Turns(4)
    for who in (0, 0, 1, 1, 1):
        turns.add(who)
    assert turns.full and turns.counts == {0: 1, 1: 3}
    assert turns.rarest(0) == [0]
    turns.add(1)
    assert turns.counts == {1: 4}
    turns.clear()
    turns.add(1)
    turns.add(0)
    assert turns.rarest(0) == [0, 1], "who was first is known even after a new phase"


def trained_by_hand(loops: Loops, steps: int, loader: bool = False) -> list[Loop | None]:
    """A model, its criterion and a backward pass; the parameters are changed without an optimizer."""
    ends = []
    for _ in range(steps):
        if loader:
            ends += [loops.wait(), loops.batch(0)]
        ends += [loops.forward(0, TRAINING), loops.forward(1, TRAINING), loops.backward()]
    return ends


@pytest.mark.parametrize("count", [1, 3, 100])
def test_updates_inside_a_backward_pass_make_it_the_step(count: int) -> None:
    """The optimizer of each weight steps in a hook of its gradient."""
    loops, ends = Loops(), []
    for _ in range(20):
        ends += [loops.forward(0, TRAINING), loops.forward(1, TRAINING), loops.backward()]
        for _ in range(count):
            loops.updated_inside()
    assert after(ends) == {(BACKWARDS, 0): 19}


def test_updates_inside_every_fourth_backward_pass_are_accumulation() -> None:
    loops, ends = Loops(), []
    for number in range(80):
        ends += [loops.forward(0, TRAINING), loops.backward()]
        if number % 4 == 3:
            loops.updated_inside()
    assert after(ends) == {(BACKWARDS, 0): 19}


def test_where_an_optimizer_steps_outside_too_that_is_the_step() -> None:
    loops, ends = Loops(), []
    for _ in range(20):
        ends += [loops.forward(0, TRAINING), loops.backward()]
        loops.updated_inside()
        ends += [loops.update(0)]
    assert after(ends) == {(UPDATES, 0): 20}


def test_where_an_optimizer_steps_outside_later_too_passes_are_accumulation() -> None:
    loops, ends = Loops(), []
    for number in range(80):
        ends += [loops.forward(0, TRAINING), loops.backward()]
        loops.updated_inside()
        if number % 4 == 3:
            ends += [loops.update(0)]
    assert after(ends) == {(UPDATES, 0): 20, (BACKWARDS, 0): 3}, "the first passes were steps as far as was known"


@pytest.mark.parametrize("loader", [False, True])
def test_backward_passes_are_steps_where_no_optimizer_was_made(loader: bool) -> None:
    assert after(trained_by_hand(Loops(lambda: False), 100, loader)) == {(BACKWARDS, 0): 99}


def test_evaluation_behind_training_by_hand_is_another_loop() -> None:
    loops = Loops(lambda: False)
    for _ in range(2):
        trained_by_hand(loops, 20)
        found = after(loops.forward(module, INFERENCE) for _ in range(20) for module in (0, 1))
        assert found == {(BACKWARDS, 0): 1, (FORWARDS, 0): 20 - PATIENCE_INFERENCE}


def test_backward_passes_wait_for_an_optimizer_that_was_made() -> None:
    loops = Loops(lambda: True)
    assert after(trained_by_hand(loops, 100)) == {(BACKWARDS, 0): 100 - PATIENCE_TRAINING - 1}
    assert loops.update(0) == (UPDATES, 0)
    assert not after(trained_by_hand(loops, 100)), "so long an accumulation was seen"


def test_a_gan_by_hand_steps_with_the_module_that_comes_once() -> None:
    loops = Loops(lambda: False)
    ends = []
    for _ in range(100):
        for first in (0, 1, 1):
            ends += [loops.forward(first, TRAINING), loops.backward()]
    assert after(ends[6:]) == {(BACKWARDS, 0): 99}


def test_modules_called_before_the_first_pass_hide_no_step() -> None:
    """Keras builds a model by calls of its layers, as others find out the shapes in it; none of them trains."""
    loops = Loops(lambda: False)
    ends = [loops.forward(layer, TRAINING) for layer in (1, 2, 3)]
    for _ in range(20):
        ends += [loops.wait(), loops.batch(0), loops.forward(0, TRAINING), loops.backward()]
    assert after(ends) == {(BACKWARDS, 1): 1, (BACKWARDS, 0): 18}


def test_passes_without_modules_are_steps_too() -> None:
    loops = Loops(lambda: False)
    assert after(loops.backward() for _ in range(100)) == {(BACKWARDS, -1): 99}


def test_inference_in_every_step_is_part_of_the_step() -> None:
    """Rollouts of a policy, a teacher: after some rounds nothing but the update ends a step."""
    loops = Loops()
    ends = [
        [*(loops.forward(0, INFERENCE) for _ in range(10)), loops.forward(0, TRAINING), loops.update(0)]
        for _ in range(50)
    ]
    assert all(after(round_) == {(UPDATES, 0): 1} for round_ in ends[RUNS:])
    assert after(loops.forward(0, INFERENCE) for _ in range(60))[FORWARDS, 0] == 40, "an evaluation is none"


def test_transforms_in_front_of_a_model_are_no_steps_and_nobody_waits_for_their_update() -> None:
    """torchvision's Resize and Normalize are modules, in training mode, and gradients are on in many a script."""
    loops, resize, normalize, model = Loops(), 0, 1, 2
    loops.bare(resize)
    loops.bare(normalize)
    ends = [loops.forward(who, flags) for _ in range(10) for who, flags in ((resize, 3), (normalize, 3), (model, 2))]
    assert after(ends) == {(FORWARDS, model): 10 - PATIENCE_INFERENCE}


def test_modules_without_parameters_are_steps_where_there_are_no_others() -> None:
    loops = Loops()
    loops.bare(0)
    assert after(loops.forward(0, INFERENCE) for _ in range(10)) == {(FORWARDS, 0): 10 - PATIENCE_INFERENCE}


def test_a_loss_that_is_a_module_changes_no_step_of_a_training() -> None:
    loops = Loops()
    loops.bare(1)
    ends = []
    for _ in range(5 * 100):
        ends += [loops.forward(0, TRAINING), loops.forward(1, TRAINING), loops.backward()]
        ends += [loops.update(0)]
    assert after(ends) == {(UPDATES, 0): 500}


def recorded() -> tuple[Recorder, list[Loop]]:
    """A recorder without a journal, and the ends of steps that it tells."""
    ends: list[Loop] = []
    journal: Any = SimpleNamespace(events=lambda values: None)
    return Recorder(lambda: journal, lambda kind, number, now: ends.append((kind, number))), ends


@pytest.mark.parametrize("made", [
    lambda: torch.nn.Softmax(dim=1), torch.nn.CrossEntropyLoss, lambda: torch.nn.LayerNorm(4),
    lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()),
])  # fmt: skip
def test_a_module_that_is_made_for_every_call_hides_no_step(made: Callable[[], torch.nn.Module]) -> None:
    recorder, ends = recorded()
    model = torch.nn.Linear(4, 4)
    for _ in range(400):
        for module in (model, made()):
            recorder.forward(recorder.module(module), INFERENCE)
        del module
    assert after(ends) == {(FORWARDS, 0): 400 - PATIENCE_INFERENCE}
    assert len(recorder.modules.refs) == 2 and len(recorder._parts) == 2


def test_models_that_come_one_behind_the_other_are_not_one() -> None:
    """Each is called more than once, or lives on."""
    recorder, _ = recorded()
    kept = torch.nn.ReLU()
    assert recorder.module(kept) == 0
    assert recorder.module(torch.nn.ReLU()) == 1
    again = torch.nn.ReLU()
    assert recorder.module(again) == recorder.module(again) == 1
    del again
    assert recorder.module(torch.nn.ReLU()) == 2
    assert recorder.module(kept) == 0


GRAPH = SimpleNamespace()


def adopted(recorder: Recorder, trains: bool | None, times: int) -> list[bool]:
    """Whether another thread becomes the watched one, each time that it makes something."""
    found: list[bool] = []
    other = threading.Thread(target=lambda: found.extend(recorder.adopts(trains) for _ in range(times)))
    other.start()
    other.join()
    return found


@pytest.mark.parametrize("infers", [lambda one: one.forward(0, INFERENCE), lambda one: one.replay(GRAPH)])
def test_who_infers_keeps_the_role_until_another_thread_alone_has_for_long(infers: Callable[[Recorder], None]) -> None:
    recorder, _ = recorded()
    recorder.thread = threading.get_ident()
    for _ in range(2):
        infers(recorder)
        assert not any(adopted(recorder, False, PATIENCE_THREADS))
    assert adopted(recorder, False, 1) == [True]


@pytest.mark.parametrize("trains", [True, None])
def test_no_thread_of_a_forked_child_is_watched_nor_one_that_makes_no_step(trains: bool | None) -> None:
    recorder, _ = recorded()
    recorder.thread = 0 if trains else threading.get_ident()
    assert adopted(recorder, trains, 2) == [False, False]
