"""An optimizer's closure is no update: LBFGS evaluates it again and again, Lightning trains inside one."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from gobrrr.ledger.host.host_ops import evaluations
from gobrrr.ledger.host.stacks import read_stack
from gobrrr.ledger.model.ledger import HostGroup
from gobrrr.recording.model.facts import Facts
from gobrrr.recording.run_folder.run import Samples
from tests.rules.test_rules_updates import ADAM
from tests.support.handmade import MS, OTHER_LINE, Case, op

STEP = ("Optimizer.step#AdamW.step",)


def found(update: tuple[int, int], *ops: tuple[int, int, str]) -> list[list[int]]:
    starts, ends, phases = zip(*ops, strict=True)
    return evaluations(np.array([update], np.int64), list(starts), list(ends), phases).tolist()


def test_an_update_without_backward_has_no_closure():
    assert found((0, 100), (10, 20, "optimizer"), (30, 40, "forward")) == []


def test_a_closure_ends_with_its_backward():
    """Lightning: hooks, forward, loss and backward, then the update."""
    ops = ((10, 20, "forward"), (20, 30, "loss"), (40, 60, "backward"), (70, 90, "optimizer"))
    assert found((0, 100), *ops) == [[0, 60]]


def test_between_evaluations_the_optimizer_works():
    """LBFGS: its line search evaluates again."""
    ops = ((10, 20, "forward"), (30, 40, "backward"), (45, 55, "optimizer"), (60, 70, "forward"), (70, 80, "backward"))
    assert found((0, 100), *ops) == [[0, 40], [60, 80]]


def test_what_lies_outside_the_update_is_not_looked_at():
    assert found((50, 100), (10, 20, "forward"), (30, 40, "backward"), (60, 70, "optimizer")) == []


def test_the_optimizer_is_not_blamed_for_its_closure():
    """BRR208 spoke of all ops inside the annotation."""
    update = op("addcdiv_", (4000, 1000), (4000, 1000), ms=2, calls=100, phase="optimizer", parents=STEP)
    loss = op("mse_loss", (4000, 1000), (4000, 1000), ms=180, calls=100, phase="loss", parents=STEP)
    case = Case(ops=(update, loss), facts=Facts(optimizers=(ADAM,)), ms=200)
    assert not case.raised("BRR208")


def test_updates_are_no_longer_than_the_sampled_steps_had_them():
    from gobrrr.ledger.model.ledger import LineGroup

    update = op("addcdiv_", (4000, 1000), (4000, 1000), ms=50, calls=100, bytes=0.9e9, phase="optimizer", parents=STEP)
    case = Case(ops=(update,), facts=Facts(optimizers=(ADAM,)), phases=(("optimizer", 150 * MS),), ms=200)
    assert case.raised("BRR208")[0].evidence["optimizer_step"].value == 150 * MS
    case.extra = {"lines": (LineGroup((OTHER_LINE,), 90 * MS, "optimizer"),)}
    assert case.raised("BRR208")[0].evidence["optimizer_step"].value == 90 * MS


def test_an_update_of_dispatch_and_python_is_not_bound_by_memory():
    update = op("addcdiv_", (8,), (8,), ms=60, calls=16_000, floor_ns=1 * MS, dispatch_ns=16 * MS, phase="optimizer")
    small = replace(ADAM, param_bytes=4000, grad_bytes=4000, state_bytes=8000, num_elements=1000, num_tensors=1600)
    case = Case(
        ops=(replace(update, parents=STEP),), facts=Facts(optimizers=(small,)), phases=(("optimizer", 90 * MS),),
        extra={"host": (HostGroup((OTHER_LINE,), 30 * MS, "optimizer"),)},
    )  # fmt: skip
    (said,) = case.raised("BRR208")
    assert said.bound == "overhead"
    assert dict(said.lies)["host"] == 30 * MS


@pytest.mark.parametrize(("floor", "bound"), [(20, "bandwidth"), (2, "overhead")])
def test_memory_binds_only_what_is_near_its_ceiling(floor, bound):
    update = op("addcdiv_", (4000, 1000), (4000, 1000), ms=90, calls=100, floor_ns=floor * MS, dispatch_ns=0.1 * MS)
    small = replace(ADAM, param_bytes=4000, grad_bytes=4000, state_bytes=8000)
    case = Case(ops=(replace(update, phase="optimizer", parents=STEP),), facts=Facts(optimizers=(small,)))
    assert case.raised("BRR208")[0].bound == bound


def phase(*frames: tuple[str, str]) -> str:
    samples = Samples(frames=tuple((file, name, 1, False) for file, name in frames), stacks=())
    return read_stack(samples, tuple(range(len(frames)))).phase


TORCH = "/x/site-packages/torch/optim"
WRAPPER, ADAM_STEP = (f"{TORCH}/optimizer.py", "wrapper"), (f"{TORCH}/adam.py", "step")


def test_a_sampled_closure_is_no_update():
    assert phase((f"{TORCH}/adam.py", "_single_tensor_adam"), ADAM_STEP, WRAPPER) == "optimizer"
    assert phase(("/x/site-packages/lightning/loops.py", "closure"), ADAM_STEP, WRAPPER) == "other"
    assert phase(("/home/me/train.py", "closure"), ADAM_STEP, WRAPPER) == "other"
    assert phase(("/home/me/lion.py", "helper"), ("/home/me/lion.py", "step"), WRAPPER) == "optimizer"


def test_our_own_hooks_are_in_no_line():
    files = (("/x/gobrrr/capture/hooks.py", "_forward"), ("/home/me/train.py", "main"))
    samples = Samples(frames=tuple((f, n, 1, "me" in f) for f, n in files), stacks=())
    stack = read_stack(samples, (0, 1))
    assert stack.watches and not stack.libraries
    called = (("/x/torch/nn/linear.py", "forward"), *files)
    samples = Samples(frames=tuple((f, n, 1, "me" in f) for f, n in called), stacks=())
    stack = read_stack(samples, (0, 1, 2))
    assert not stack.watches and len(stack.libraries) == 1
