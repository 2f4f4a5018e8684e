"""The counting step against counts by hand: padding, containers that hold graphs, repeated inputs."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, UserDict, defaultdict, deque
from pathlib import Path
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")

from gobrrr.capture.facts.tensors import MIN_PADDED_LENGTH, describe, tensors_in  # noqa: E402
from gobrrr.capture.session.recorder import Recorder  # noqa: E402
from gobrrr.capture.source.user_code import UserFiles  # noqa: E402
from gobrrr.capture.windows.counted import Counted, grown, held_tensors, kept_graphs  # noqa: E402
from gobrrr.capture.windows.line_log import LineLog, module_names  # noqa: E402


class Users(UserFiles):
    """These tests are the user's program."""

    def is_user(self, filename: str) -> bool:
        return filename == __file__


# inputs


def called(net: Any, *batches: Any, flushes: bool = True) -> Counted:
    """Calls of a module by the program, seen by the line log."""
    counted = Counted(flushes)
    log = LineLog(Users(), module_names([net]), counted.module)
    assert log.start(sys._getframe())
    try:
        for batch in batches:
            net(batch)
    finally:
        log.stop(sys._getframe())
    assert not counted.error
    return counted


@pytest.fixture
def untraced() -> Any:
    """Coverage or a debugger may be tracing this very test."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


class Lowered(torch.nn.Module):
    """Autocast begins inside of it."""

    def __init__(self, inner: bool) -> None:
        super().__init__()
        self.inner, self.body = inner, torch.nn.Linear(8, 16)

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.inner):
            return self.body(x)


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(("inner", "outer"), [(True, False), (False, True), (False, False)])
def test_autocast_is_seen_wherever_it_begins(inner: bool, outer: bool) -> None:
    with torch.autocast("cpu", torch.bfloat16, enabled=outer):
        found = called(Lowered(inner), torch.ones(4, 8)).switches
    assert found["autocast"] == ("bfloat16" if inner or outer else None) and found["grad_enabled"]


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("last", [True, False])
def test_autocast_is_that_of_the_last_module_that_the_program_called(last: bool) -> None:
    """A teacher's says nothing of a student that casts by hand."""
    plain, lowered = torch.nn.Linear(8, 8), Lowered(True)
    both = [plain, lowered] if last else [lowered, plain]
    counted = Counted(True)
    log = LineLog(Users(), module_names(both), counted.module)
    assert log.start(sys._getframe())
    try:
        for net in both:
            net(torch.ones(4, 8))
    finally:
        log.stop(sys._getframe())
    assert counted.switches["autocast"] == ("bfloat16" if last else None)


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    ("net", "turned"),
    [
        (torch.nn.GRU(8, 16), True),
        (torch.nn.GRU(8, 16, batch_first=True), False),
        (torch.nn.Sequential(torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)), True),
        (torch.nn.Linear(8, 16), False),
    ],
)
def test_what_takes_the_length_first_is_known_by_its_parts(net: Any, turned: bool) -> None:
    assert [given["turned"] for given in called(net, torch.randn(1, 4, 8)).inputs] == [turned]


@pytest.mark.usefixtures("untraced")
def test_calls_of_inner_modules_are_not_the_programs() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())
    ((number, root),) = called(net, torch.randn(4, 8), torch.randn(4, 8)).roots.items()
    assert (number, root["calls"], root["repeated"]) == (id(net), 2, 0)
    assert root["grad_enabled"] is True


@pytest.mark.usefixtures("untraced")
def test_the_same_input_twice_is_a_repeat_until_it_is_written() -> None:
    net, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    (root,) = called(net, x, x).roots.values()
    assert root["repeated"] == 1
    counted = Counted(True)
    counted._root(net, [x], None)
    x.add_(1)
    counted._root(net, [x], None)
    counted._root(net, [x.clone()], None)
    (root,) = counted.roots.values()
    assert (root["calls"], root["repeated"]) == (3, 0)
    counted = Counted(True)
    for training in (True, False):
        counted._root(net.train(training), [x], None)
    (root,) = counted.roots.values()
    assert (root["calls"], root["repeated"]) == (2, 0), "a test after a step is no second forward"


@pytest.mark.usefixtures("untraced")
def test_an_update_between_two_forwards_of_one_input_makes_them_two() -> None:
    """Held-out data after each update: the same tensor, another model."""
    net, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    counted = Counted(True)
    for _ in range(3):
        counted._root(net, [x], None)
        net(x).sum().backward()
        optimizer.step()
    assert [root["repeated"] for root in counted.roots.values()] == [0]


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("fused", [False, True])
def test_of_four_looks_with_two_updates_between_one_repeats(fused: bool) -> None:
    """SAC: the actor's loss, an update, the temperature's loss and the actor's again, an update, the temperature's."""
    net, recorder = torch.nn.Linear(8, 8), Recorder(lambda: None, lambda *_: None)  # type: ignore[arg-type, return-value]
    optimizer = torch.optim.Adam(net.parameters(), fused=fused)
    counted = Counted(True, updates=recorder.updates_of)
    for _ in range(3):
        x = torch.randn(4, 8)
        for update in (True, False, True, False):
            counted._root(net, [x], None)
            if update:
                net(x).sum().backward()
                optimizer.step()
                recorder._num_updates[recorder.optimizers.number(optimizer)] += 1
    assert [root["repeated"] for root in counted.roots.values()] == [3]


@pytest.mark.usefixtures("untraced")
def test_an_update_of_other_weights_leaves_a_repeat_one() -> None:
    actor, critic = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    recorder = Recorder(lambda: None, lambda *_: None)  # type: ignore[arg-type, return-value]
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    counted, x = Counted(True, updates=recorder.updates_of), torch.randn(4, 8)
    counted._root(actor, [x], None)
    critic(x).sum().backward()
    optimizer.step()
    recorder._num_updates[recorder.optimizers.number(optimizer)] += 1
    counted._root(actor, [x], None)
    assert [root["repeated"] for root in counted.roots.values()] == [1]


@pytest.mark.usefixtures("untraced")
def test_calls_of_the_repeating_line_are_counted_whichever_line_comes_first() -> None:
    net, first, again = torch.nn.Linear(8, 8), {"file": "a.py", "line": 3}, {"file": "a.py", "line": 9}
    counted = Counted(True)
    for _ in range(3):
        x = torch.randn(4, 8)
        counted._root(net, [x], first)
        counted._root(net, [x], again)
    (root,) = counted.roots.values()
    assert (root["repeated"], root["repeated_span"], root["repeated_span_calls"]) == (3, again, 3)


@pytest.mark.usefixtures("untraced")
def test_what_is_given_again_is_weighed_by_its_size() -> None:
    """Captum: the picture, fifty copies of it, the picture."""
    net, line = torch.nn.Linear(8, 8), {"file": "a.py", "line": 3}
    counted = Counted(True)
    x = torch.randn(1, 8)
    for given in (x, torch.randn(50, 8), x):
        counted._root(net, [given], line)
    (root,) = counted.roots.values()
    assert (root["repeated"], root["repeated_size"], root["repeated_span_size"]) == (1, 8, 52 * 8)


@pytest.mark.usefixtures("untraced")
def test_inputs_are_described_once_per_call() -> None:
    counted = called(torch.nn.Embedding(50, 4), torch.randint(2, 50, (4, 16)))
    (given,) = counted.inputs
    assert (given["shape"], given["dtype"], given["num_bytes"]) == ([4, 16], "int64", 8 * 64)
    assert not given["made"]
    made = torch.nn.Linear(4, 4)(torch.randn(8, 4))
    (given,) = called(torch.nn.Sigmoid(), made).inputs
    assert given["made"], "a result of another model, as a loss is given one"


IDS = torch.arange(2, 34).reshape(4, 8)


@pytest.mark.parametrize(
    ("then", "extends"),
    [
        (torch.cat([IDS, IDS[:, :1]], 1), True),
        (torch.cat([IDS[[0, 0, 3, 1]], IDS[:, :1]], 1), True),
        (torch.cat([IDS + 1, IDS[:, :1]], 1), False),
        (IDS, None),
        (torch.cat([IDS, IDS[:, :2]], 1), None),
        (torch.cat([IDS, IDS[:, :1]], 1)[:2], True),
        (torch.cat([IDS, IDS[:, :1]], 1).int(), None),
    ],
    ids=[
        "one token more",
        "beams in another order",
        "other texts",
        "the same",
        "two more",
        "some of them",
        "other type",
    ],
)
@pytest.mark.usefixtures("untraced")
def test_whether_a_text_is_the_one_before_and_a_token_more(then: Any, extends: bool | None) -> None:
    first, second = called(torch.nn.Embedding(50, 4), IDS.clone(), then).inputs
    assert (first["extends"], second["extends"]) == (None, extends)


@pytest.mark.usefixtures("untraced")
def test_texts_that_grow_in_turns_are_each_held_against_all_that_came_before() -> None:
    grown = torch.cat([IDS, IDS[:, :1]], 1)
    given = called(torch.nn.Embedding(50, 4), IDS[:1], IDS[1:2], grown[:1], grown[1:2]).inputs
    assert [each["extends"] for each in given] == [None, None, True, True]


@pytest.mark.parametrize("shape", [(0,), (0, 8), (4, 0)])
@pytest.mark.usefixtures("untraced")
def test_an_input_of_nothing_costs_no_count(shape: tuple[int, ...]) -> None:
    """A step without labels lost the whole window."""
    nothing = torch.zeros(shape, dtype=torch.int64)
    assert [each["extends"] for each in called(torch.nn.Identity(), nothing, nothing.clone()).inputs] == [None, None]


@pytest.mark.parametrize("first", [torch.ones(4, 8).long(), torch.arange(8).repeat(4, 1), torch.zeros(4, 8).bool()])
@pytest.mark.usefixtures("untraced")
def test_masks_and_positions_say_nothing_of_a_text(first: Any) -> None:
    longer = torch.cat([first, first[:, -1:] + (int(first.max()) > 1)], 1).to(first.dtype)
    assert [each["extends"] for each in called(torch.nn.Flatten(), first, longer).inputs] == [None, None]


@pytest.mark.usefixtures("untraced")
def test_subnormal_inputs_are_told_with_their_share() -> None:
    x = torch.ones(4, 8)
    x[0] = 1e-40
    (found,) = called(torch.nn.Linear(8, 8), x, flushes=False).denormals
    assert found["share"] == 0.25
    assert called(torch.nn.Linear(8, 8), x, flushes=True).denormals == []


def test_tensors_are_found_in_containers_of_containers() -> None:
    x = torch.ones(1)
    assert len(list(tensors_in((x, [x, {"a": x, "b": (x, 5, None)}])))) == 4
    assert len(list(tensors_in((UserDict(a=x, b=x),)))) == 2, "what a tokenizer gives"
    assert list(tensors_in("text")) == [] and list(tensors_in(None)) == []
    endless: list[Any] = [x]
    endless.append(endless)
    assert len(list(tensors_in(endless))) == 4, "a bounded depth"


# padding


def rows(*lengths: int, width: int = 20, pad: int = 0) -> Any:
    found = torch.full((len(lengths), width), pad)
    for row, length in enumerate(lengths):
        found[row, :length] = torch.arange(5, 5 + length)
    return found


def padding(tensor: Any) -> tuple[float | None, float | None]:
    found = describe(tensor)
    return found["pad_share"], found["pad_value"]


def test_padding_is_the_share_of_trailing_repeats() -> None:
    assert padding(rows(5, 10, 20, 15)) == (30 / 80, 0.0)
    assert describe(rows(5, 10, 18, 15))["longest"] == 18
    assert padding(rows(5, 10, 18, 18, pad=-100)) == (29 / 80, -100.0)


def test_a_single_last_value_is_no_run() -> None:
    assert padding(rows(19, 19, 10, 10)) == (20 / 80, 0.0)


def test_rows_that_end_differently_are_not_padded() -> None:
    assert padding(torch.arange(80).reshape(4, 20)) == (0.0, None)
    assert padding(rows(5, 20, 20, 20, pad=3))[0] == 0.0, "one short text in four"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(4, 20),
        torch.zeros(4, 20, dtype=torch.long),
        torch.ones(4, 20, dtype=torch.bool),
        torch.randint(0, 2, (4, 20)),
        torch.zeros(4, MIN_PADDED_LENGTH - 1, dtype=torch.long),
        torch.zeros(20, dtype=torch.long),
        torch.zeros(2, 4, 20, dtype=torch.long),
        torch.zeros(4, 20, dtype=torch.complex64),
        torch.zeros(0, 20, dtype=torch.long),
        torch.zeros(4, 0, dtype=torch.long),
    ],
    ids=lambda t: f"{t.dtype}{tuple(t.shape)}".removeprefix("torch."),
)
def test_what_is_no_batch_of_tokens_has_no_padding(tensor: Any) -> None:
    assert padding(tensor) == (None, None)
    assert describe(tensor)["pad_share"] is None and describe(tensor)["longest"] is None


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_every_integer_is_read(dtype: Any) -> None:
    assert padding(rows(5, 10, 10, 15).to(dtype)) == (40 / 80, 0.0)


# containers that hold graphs


def held(**names: Any) -> dict[str, int]:
    """What a user function with these local containers holds. No assert in it: pytest would give it a locals(), and
    functions that may hold that dict are not looked into."""
    losses, kept, other = (names.get(name) for name in ("losses", "kept", "other"))
    found = held_tensors(sys._getframe(), Users())
    del losses, kept, other
    return {
        name: now.length
        for (_, function, name), now in found.items()
        if function == "held" and not name.startswith("names")
    }


def with_graph() -> Any:
    return (torch.ones(2, requires_grad=True) * 2).sum()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda t: [1.0, t],
        lambda t: (t, t),
        lambda t: {"a": 0, "b": t},
        lambda t: deque([t, t]),
        lambda t: [(0, {"loss": t}), [t]],
    ],
)
def test_containers_whose_last_item_has_a_graph_are_held(wrap: Any) -> None:
    assert held(losses=wrap(with_graph())) == {"losses": 2}


def test_a_set_is_looked_at_too() -> None:
    assert held(losses={with_graph()}) == {"losses": 1}


@pytest.mark.parametrize(
    "container",
    [
        [], {}, set(), deque(), [1.0, 2.0], "text", None, [torch.ones(2)], [with_graph().detach()],
        [with_graph().item()], [torch.ones(2, requires_grad=True)], {"a": with_graph(), "b": 1.0},
    ],
    ids=str,
)  # fmt: skip
def test_numbers_detached_tensors_and_leaves_hold_no_graph(container: Any) -> None:
    assert held(losses=container) == {}


def test_a_view_holds_all_of_its_tensor() -> None:
    large = torch.zeros(256, 1024)

    def look(kept: Any) -> tuple[Any, ...]:
        (found,) = (held for (_, _, name), held in held_tensors(sys._getframe(), Users()).items() if name == "kept")
        return found.graph, found.storage_bytes, found.own_bytes

    assert look([large[0]]) == (False, 1 << 20, 4096)
    assert look([(large[0], large[1]), {"a": large[0], "b": large[1]}]) == (False, 1 << 20, 8192)
    assert look({0: large.clone()}) == (False, 1 << 20, 1 << 20)


def test_containers_of_the_trainer_itself_are_held() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.losses = [with_graph()]

        def step(self) -> dict[tuple[str, str, str], int]:
            return held_tensors(sys._getframe(), Users())

    assert ("step", "losses") in {(function, name) for _, function, name in Trainer().step()}


def test_lists_of_a_dict_are_containers_of_their_own() -> None:
    """history = {"loss": [], "accuracy": []} is how most people keep figures."""
    assert held(other={"loss": [with_graph()], "accuracy": [0.5]}) == {"other['loss']": 1}


def test_graphs_that_reach_over_steps_are_kept_though_nobody_looked_before() -> None:
    """A list that the last of three steps made anew is none; it is told by the order of the ops alone."""

    def train(found: list[Any]) -> None:
        log, weight = {"loss": list[Any]()}, torch.ones(2, requires_grad=True)
        for _ in range(4):
            layers = [(weight.exp() * number).sum() for number in range(5)]
            log["loss"].append(sum(layers))
        found += kept_graphs(sys._getframe(), Users(), 4)
        sum(log["loss"]).backward()
        found += [{**each, "name": "freed"} for each in kept_graphs(sys._getframe(), Users(), 4)]
        del log, layers

    seen: list[Any] = []
    thread = threading.Thread(target=train, args=(seen,))  # the order of ops is a thread's own
    thread.start()
    thread.join()
    (found,) = (each for each in seen if "loss" in each["name"])
    assert not [each for each in seen if each["name"] == "layers"]
    assert [each["graph"] for each in seen if each["name"] == "freed"] == [False], "a backward pass has freed it"
    assert (found["name"], found["length"], found["growth_per_step"], found["graph"]) == ("log['loss']", 4, 1.0, True)
    assert "append" in Path(__file__).read_text(encoding="utf-8").splitlines()[found["span"]["line"] - 1]


def test_only_what_is_kept_itself_has_grown() -> None:
    """A list of the same name that is made anew, or cleared, keeps nothing, however long it gets."""

    class Trainer:
        losses: ClassVar[list[Any]] = []

        def looked_at(self) -> dict[Any, Any]:
            return held_tensors(sys._getframe(), Users())

        def grown_since(self, before: dict[Any, Any]) -> list[str]:
            return [each["name"] for each in grown(sys._getframe(), Users(), before, 2)]

    trainer = Trainer()
    trainer.losses = [with_graph()]
    before = trainer.looked_at()
    before = {(file, "grown_since", name): held for (file, _, name), held in before.items()}
    trainer.losses.extend([with_graph(), with_graph()])
    assert trainer.grown_since(before) == ["losses"]
    trainer.losses = [with_graph() for _ in range(9)]
    assert trainer.grown_since(before) == []


def test_what_a_backward_calls_is_no_call_of_the_program() -> None:
    """Checkpointing runs in backward again what it has not kept, on the very inputs of its forward."""
    from torch.utils.checkpoint import checkpoint

    counted = Counted(flushes_denormals=True)
    block = torch.nn.Linear(4, 4)
    block.register_forward_pre_hook(lambda module, args: counted.module(module, args, {}, 0, sys._getframe()))
    checkpoint(block, torch.ones(2, 4, requires_grad=True), use_reentrant=False).sum().backward()
    (seen,) = counted.roots.values()
    assert (seen["calls"], seen["repeated"]) == (1, 0)


def test_a_users_own_kind_of_container_is_left_alone() -> None:
    """Its methods are the program's code: nothing of it is called."""

    class Loud(dict):  # type: ignore[type-arg]
        def values(self) -> Any:
            raise AssertionError("called")

    assert held(losses=Loud(a=with_graph()), kept=OrderedDict(a=with_graph()), other=defaultdict(list)) == {}
