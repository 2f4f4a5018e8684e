"""Checkpointed layers run once: the same numbers, bit for bit, and calls that ask for more are left alone."""

from __future__ import annotations

import contextlib
import gc
import random
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils import checkpoint as checkpointing  # noqa: E402

from gobrrr.errors import GobrrrError  # noqa: E402
from gobrrr.remedies import registry  # noqa: E402
from gobrrr.remedies.edits.program import patched  # noqa: E402
from gobrrr.remedies.mechanism import call_side_effects  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402


@contextlib.contextmanager
def applied(failed: Callable[[BaseException], object] | None = None) -> Iterator[list[str]]:
    said: list[str] = []
    seams = Seams(lambda remedy, detail: said.append(remedy), failed)
    install(seams, ["keep_activations"])
    try:
        yield said
    finally:
        seams.remove()


class Layers(nn.Module):
    """`recompute` is what a library keeps of torch's function, imported under a name of its own."""

    def __init__(self, recompute: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh()) for _ in range(3))
        self.recompute = recompute

    def run(self, layer: nn.Module, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return layer(x) * scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.recompute(self.run, layer, x, scale=2.0)
        return x


def gradients(recompute: Callable[..., Any], asks: bool = True) -> tuple[list[Any], int]:
    """Of a second step, and how often its layers ran."""
    model, calls = Layers(recompute), 0

    def counts(*_: Any) -> None:
        nonlocal calls
        calls += 1

    for layer in model.layers:
        layer[0].register_forward_hook(counts)
    torch.manual_seed(1)
    for _ in range(2):
        calls = 0
        x = torch.randn(4, 8, requires_grad=asks)
        loss = model(x).square().sum()
        if loss.requires_grad:
            loss.backward()
    torch.manual_seed(0)
    return [loss.detach(), *(p.grad for p in model.parameters())], calls


ONCE = [
    {"use_reentrant": False}, {"use_reentrant": False, "determinism_check": "none", "early_stop": False},
    {"use_reentrant": False, "preserve_rng_state": True},
]  # fmt: skip


@pytest.mark.parametrize("options", ONCE)
def test_layers_run_once_with_the_same_numbers(options: dict[str, Any]) -> None:
    expected, twice = gradients(partial(checkpointing.checkpoint, **options))
    with applied() as said:
        found, once = gradients(partial(checkpointing.checkpoint, **options))
    assert (twice, once) == (6, 3) and said == ["keep_activations"]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def reentrant(*args: Any, **kwargs: Any) -> Any:
    """It takes no keyword arguments for the function."""
    function, layer, x = args
    return checkpointing.checkpoint(partial(function, layer, scale=kwargs["scale"]), x, use_reentrant=True)


@pytest.mark.parametrize("asks", [True, False])
def test_reentrant_checkpoints_that_lose_gradients_are_left_alone(asks: bool) -> None:
    expected, _ = gradients(reentrant, asks)
    with applied() as said:
        found, calls = gradients(reentrant, asks)
    assert bool(said) is asks and calls == 3
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("options", [
    {"preserve_rng_state": False}, {"context_fn": lambda: (contextlib.nullcontext(), contextlib.nullcontext())},
])  # fmt: skip
def test_who_asks_for_more_than_to_recompute_gets_it(options: dict[str, Any]) -> None:
    with applied() as said:
        _, calls = gradients(partial(checkpointing.checkpoint, use_reentrant=False, **options))
    assert calls == 6 and not said


class Normed(nn.Module):
    """Checkpointed by a method, a closure, a partial or by itself."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        block = self.block
        ways: dict[str, Callable[..., Any]] = {
            "method": self.run, "closure": lambda x: block(x), "partial": partial(self.given, block), "module": block,
        }  # fmt: skip
        self.way = [ways[how]]

    def run(self, x: torch.Tensor) -> Any:
        return self.block(x)

    @staticmethod
    def given(block: nn.Module, x: torch.Tensor) -> Any:
        return block(x)

    def forward(self, x: torch.Tensor) -> Any:
        return checkpointing.checkpoint(self.way[0], x, use_reentrant=False)


@pytest.mark.parametrize("how", ["method", "closure", "partial", "module"])
def test_norms_whose_statistics_move_twice_go_on_doing_so(how: str) -> None:
    def trained() -> list[torch.Tensor]:
        model = Normed(how)
        for _ in range(3):
            model(torch.linspace(0, 3, 32).view(4, 8)).square().sum().backward()
        return list(model.buffers())

    expected = trained()
    with applied() as said:
        found = trained()
    assert not said and all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


NORM = nn.BatchNorm1d(8)


def normed(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.relu(NORM(x))


def twice(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Computed again the first time."""
    for _ in range(2):
        checkpointing.checkpoint(function, *args, use_reentrant=False, **kwargs).sum().backward()


def attended(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return nn.functional.multi_head_attention_forward(
        x, x, x, 8, 2, weight, None, None, None, False, 0.0, weight[:8], None
    )[0]  # fmt: skip


def test_a_norm_that_a_function_names_goes_on_moving_twice() -> None:
    with applied() as said:
        twice(partial(normed), torch.ones(4, 8))
    assert not said and NORM.num_batches_tracked == 4


def test_a_function_of_the_program_is_looked_into_and_not_those_of_packages() -> None:
    looked_at: set[str] = set()

    def asked(function: Any) -> Any:
        looked_at.add(function.__name__)
        return plain(function)

    plain = call_side_effects._named_by
    with applied() as said, pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_side_effects, "_named_by", asked)
        x, weight = torch.ones(3, 1, 8), torch.ones(24, 8, requires_grad=True)
        twice(attended, x, weight)
    assert said and looked_at == {"attended"}


def test_a_closure_that_is_not_filled_yet_is_no_obstacle() -> None:
    def layer(x: torch.Tensor) -> torch.Tensor:
        return x.tanh() if x.numel() else later(x)

    with applied() as said:
        twice(layer, torch.ones(4, 8, requires_grad=True))
    later = layer
    assert said and later


def test_a_norm_in_eval_mode_is_no_reason_to_compute_again() -> None:
    model = Normed("closure").eval()
    with applied() as said:
        for _ in range(2):
            model(torch.ones(4, 8)).sum().backward()
    assert said


class Averaged(nn.Module):
    """Its average moves in each forward, early or late in it; it may begin to only later."""

    def __init__(self, how: str, since: int = 0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("centre", torch.zeros(8))
        self.seen, self.losses, self.calls, self.how, self.since = torch.zeros(8), [], 0, how, [since]
        self.counts, self.kept, self.hits = {"calls": [0]}, [torch.ones(8)], np.zeros(2)

    def forward(self, x: torch.Tensor) -> Any:
        if self.how == "last":
            x = self.after(self.before(x).tanh()).tanh()
        with torch.no_grad():
            if self.since[0] <= 0:
                self.move(x)
        return x if self.how == "last" else self.after(self.before(x).tanh()).tanh()

    def move(self, x: torch.Tensor) -> None:
        if self.how == "counter":
            self.calls += 1
        elif self.how == "list":
            self.losses.append(1.0)
        elif self.how == "attribute":
            self.seen.lerp_(x.mean(0), 0.1)
        elif self.how == "data":
            self.centre.data.lerp_(x.mean(0), 0.1)
        elif self.how == "new":
            self.centre = self.centre.lerp(x.mean(0), 0.1)
        elif self.how == "dict":
            self.counts["calls"][0] += 1
        elif self.how == "entry":
            mean = x.mean(0)
            self.kept[0] = self.kept[0] * 0.9
            self.kept[0] = self.kept[0] + mean  # where the one of before was, in memory
        elif self.how == "array":
            self.hits[0] += 1
        elif self.how == "random":
            self.drawn = None if random.random() < 2 else x
        else:
            self.centre.lerp_(x.mean(0), 0.1)

    def state(self) -> list[Any]:
        counted = [self.calls, len(self.losses), *self.counts["calls"]]
        return [*self.parameters(), self.centre, self.seen, *self.kept, torch.tensor([*counted, *self.hits])]


def averaged(model: Averaged, reentrant: bool, steps: int = 3) -> list[Any]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    random.seed(0)
    for number in range(steps):
        x = torch.linspace(0, 1 + number, 32).view(4, 8).requires_grad_()
        optimizer.zero_grad()
        checkpointing.checkpoint(model, x, use_reentrant=reentrant).square().sum().backward()
        optimizer.step()
        model.since[0] -= 1
    return [*model.state(), torch.tensor(random.random())]


HOW = ["first", "last", "counter", "list", "dict", "attribute", "data", "new", "random", "entry", "array"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("reentrant", [True, False])
def test_what_moves_in_each_forward_goes_on_doing_so_as_often(how: str, reentrant: bool) -> None:
    expected = averaged(Averaged(how), reentrant)
    with applied() as said:
        found = averaged(Averaged(how), reentrant)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert bool(said) is (how == "last" and not reentrant)  # torch stops before it comes to it again


@pytest.mark.parametrize("how", ["first", "entry", "array"])
def test_what_begins_to_move_later_takes_the_remedy_away(how: str) -> None:
    with applied() as said, pytest.raises(GobrrrError, match="begun to change"):
        averaged(Averaged(how, since=2), True, 4)
    assert said


@pytest.mark.parametrize("array", [np.zeros(1 << 18), np.array([None, 1])])
def test_an_array_that_is_too_much_to_look_at_or_holds_objects_is_computed_again_with(array: Any) -> None:
    layer = nn.Linear(8, 8)
    layer.table = array
    with applied() as said:
        twice(layer, torch.ones(4, 8))
    assert not said


def test_a_look_keeps_no_class_alive() -> None:
    kind = type("Kind", (), {})
    call_side_effects.Glance([[kind()]])
    ref = weakref.ref(kind)
    del kind
    gc.collect()
    assert ref() is None


class Noisy(nn.Module):
    """Noise begins after some steps, from a stream of the program's; a dropout draws from torch's beside."""

    def __init__(self, stream: Any, draw: Callable[[Any], float]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.stream, self.draw, self.is_on = nn.Linear(8, 8), stream, draw, False

    def forward(self, x: torch.Tensor, *given: Any) -> torch.Tensor:
        stream = given[0] if given else self.stream
        x = nn.functional.dropout(x, 0.5)
        return self.inner(x * (1 + self.draw(stream)) if self.is_on else x).tanh()


NOISE: dict[str, tuple[Callable[[], Any], Callable[[Any], float]]] = {
    "Python's": (lambda: None, lambda _: random.random()),
    "NumPy's": (lambda: None, lambda _: np.random.rand()),
    "NumPy's over other bits": (
        lambda: np.random.set_bit_generator(np.random.PCG64(0)), lambda _: np.random.standard_normal(),
    ),
    "one of torch": (lambda: torch.Generator().manual_seed(1), lambda own: torch.rand(1, generator=own).item()),
    "one of Python": (lambda: random.Random(1), lambda own: own.random()),
    "one of NumPy": (lambda: np.random.default_rng(1), lambda own: own.random()),
    "an old one of NumPy": (lambda: np.random.RandomState(1), lambda own: own.rand()),
    "an old one over other bits": (lambda: np.random.RandomState(np.random.PCG64(1)), lambda own: own.rand()),
}  # fmt: skip


@pytest.fixture
def _numpys_own() -> Iterator[None]:
    usual = np.random.get_bit_generator()
    yield
    np.random.set_bit_generator(usual)


@pytest.mark.usefixtures("_numpys_own")
@pytest.mark.filterwarnings("error:get_state")
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("given", [True, False], ids=["given", "held"])
@pytest.mark.parametrize("stream", NOISE)
def test_what_begins_to_draw_later_draws_as_often(
    stream: str, given: bool, reentrant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threading.active_count", lambda: 1)  # pytest-xdist has a thread of its own

    def trained() -> list[Any]:
        make, draw = NOISE[stream]
        random.seed(0)
        np.random.set_bit_generator(np.random.MT19937(0))
        made = make()
        model = Noisy(None if given else made, draw)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for number in range(6):
            model.is_on = number > 2
            x = torch.linspace(0, 1 + number, 32).view(4, 8).requires_grad_()
            optimizer.zero_grad()
            more = (made,) if given else ()
            checkpointing.checkpoint(model, x, *more, use_reentrant=reentrant).square().sum().backward()
            optimizer.step()
        left = [random.random(), np.random.rand(), torch.rand(1).item(), draw(made)]
        return [*model.parameters(), torch.tensor(left)]

    expected = trained()
    with applied() as said:
        found = trained()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert said or (given and reentrant)  # it may hold a generator that is not known


class Counted(nn.Module):
    """From a step on it draws, and counts what torch does not come to again in backward: always, or from then on."""

    def __init__(self, since: int) -> None:
        super().__init__()
        self.inner, self.calls, self.since, self.is_on = nn.Linear(8, 8), 0, since, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = random.random() if self.is_on else 0.0
        y = self.inner(x + noise).tanh()
        self.calls += not self.since or self.is_on
        return y


@pytest.mark.parametrize("since", [0, 3])
def test_a_call_that_begins_to_draw_and_changes_something_beside_is_not_made_again(since: int) -> None:
    model, failed = Counted(since), list[BaseException]()
    with applied(failed.append) as said:
        for number in range(6):
            model.is_on = number >= 3
            checkpointing.checkpoint(model, torch.ones(4, 8), use_reentrant=False).sum().backward()
    assert said and model.calls == 6 - since and len(failed) == 1


def test_numbers_that_another_thread_draws_meanwhile_are_not_drawn_again() -> None:
    model, drawn, failed = nn.Linear(8, 8), list[float](), list[BaseException]()
    is_on = False
    with applied(failed.append) as said, ThreadPoolExecutor(1) as pool:
        model.register_forward_hook(lambda *_: drawn.append(pool.submit(random.random).result()) if is_on else None)
        pool.submit(int).result()
        for number in range(4):
            is_on = number >= 2
            checkpointing.checkpoint(model, torch.ones(4, 8), use_reentrant=False).sum().backward()
    assert said and len(set(drawn)) == len(drawn) and "another thread" in str(failed[0])


class Strange:
    def __init__(self) -> None:
        self.inner = [0]


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_what_moves_within_an_object_that_a_function_closes_over_goes_on_doing_so(reentrant: bool, early: bool) -> None:
    def moved_so_often() -> int:
        strange = Strange()

        def layer(x: torch.Tensor) -> torch.Tensor:
            strange.inner[0] += early
            y = x.tanh()
            strange.inner[0] += not early
            return y

        x = torch.ones(4, 8, requires_grad=True)
        for _ in range(3):
            checkpointing.checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
        return strange.inner[0]

    expected = moved_so_often()
    with applied() as said:
        assert moved_so_often() == expected
    assert bool(said) is not (reentrant or early)


def test_a_library_that_keeps_the_function_recomputes_again_afterwards() -> None:
    with applied():
        kept = checkpointing.checkpoint
    assert kept is not checkpointing.checkpoint and gradients(partial(kept, use_reentrant=False))[1] == 6


class Marked(nn.Sequential):
    """Checkpointed as transformers does it: by an attribute of each layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self:
            recomputes = getattr(layer, "gradient_checkpointing", False)
            x = checkpointing.checkpoint(layer, x, use_reentrant=False) if recomputes else layer(x)
        return x


@pytest.mark.parametrize("compiled", [True, False])
def test_layers_that_are_marked_forget_it_until_it_is_over(compiled: bool) -> None:
    def gradient() -> Any:
        model.zero_grad()
        run(torch.ones(4, 8)).square().sum().backward()
        return model[0].weight.grad

    torch.manual_seed(0)
    model = Marked(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    model[0].gradient_checkpointing = model[1].gradient_checkpointing = True
    run: Any = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    expected = gradient().clone()
    with applied() as said:
        assert torch.equal(gradient(), expected)
        assert said == ["keep_activations"] and not model[0].gradient_checkpointing
    assert model[0].gradient_checkpointing and model[1].gradient_checkpointing and torch.equal(gradient(), expected)


@pytest.mark.parametrize("part", [nn.BatchNorm1d(8), Averaged("first")])
def test_layers_that_may_move_something_stay_marked(part: nn.Module) -> None:
    model = Marked(nn.Sequential(nn.Linear(8, 8), part))
    model[0].gradient_checkpointing = True
    with applied() as said:
        model(torch.rand(4, 8)).sum().backward()
    assert not said


def test_compiled_calls_stay_as_they_are() -> None:
    class Plain(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self:
                x = checkpointing.checkpoint(layer, x, use_reentrant=False)
            return x

    with applied() as said:
        torch.compile(Plain(nn.Linear(8, 8)), backend="aot_eager", fullgraph=True)(torch.ones(4, 8)).sum().backward()
    assert not said


def test_trainers_arguments_are_patched() -> None:
    edit = registry.remedy("keep_activations").edit
    assert edit is not None
    assert "gradient_checkpointing=False" in patched('from trl import SFTConfig\nargs = SFTConfig("out")\n', [edit])
