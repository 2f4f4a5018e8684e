"""What no model, gradient or update shows: copies of the weights, files, printed lines, epochs, random draws."""

from __future__ import annotations

import gc
import random
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from msgspec.structs import replace
from torch.utils.data import BatchSampler, DataLoader, Dataset

from gobrrr import guard
from gobrrr.capture.hooks.lookup import Patches
from gobrrr.guard.model.observation import Call, Data, Observation, Step
from gobrrr.guard.reference.states import States
from gobrrr.guard.two_runs import observe
from gobrrr.guard.verdicts import side_effects
from gobrrr.guard.watch import dropout, randomness
from gobrrr.guard.watch.dropout import same_masks_in_any_layout
from gobrrr.guard.watch.effects import printed
from gobrrr.guard.watch.epochs import Epochs
from gobrrr.guard.watch.randomness import begin
from gobrrr.guard.watch.weight_copies import copies


class Pictures(Dataset):
    """64 pictures, each turned upside down at random."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.pictures = torch.arange(64.0)[:, None] + torch.arange(8.0) / 8

    def __len__(self) -> int:
        return 32 if self.fault == "half the data set" else 64

    def __getitem__(self, index: int) -> torch.Tensor:
        picture = self.pictures[index]
        if self.fault == "no augmentation":
            return picture
        return picture.flip(0) if torch.rand(()) < 0.5 else picture


def train(fault: str = "", late: int = 0, folder: Path | None = None) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8))
    shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(Pictures(fault), batch_size=4, shuffle=True)
    if fault == "other order":
        torch.rand(3)
    step = 0
    while step < 32:
        for batch in loader:
            now = fault if step >= late else ""
            if now == "a number drawn more":
                torch.rand(())
            optimizer.zero_grad()
            (model(batch / 64) - batch / 64).square().mean().backward()
            optimizer.step()
            for name, p in model.named_parameters():
                if now != "EMA stops":
                    shadow[name].lerp_(p.detach(), 0.5 if now == "EMA of another pace" else 0.1)
            if folder is not None and now != "no checkpoint":
                torch.save(step, folder / "checkpoint.pt") if now == "x" else (folder / "last.txt").write_text(
                    str(step)
                )
            step += 1


SIDES = ["EMA stops", "EMA of another pace", "a number drawn more"]


class Twins:
    def __init__(self, folder: Path) -> None:
        self.plain = observe(train, states=States(folder, keeps=True))
        self.states = States(folder, keeps=False)
        self.again = observe(train, states=self.states)
        self.seeds = [observe(train, seed=number) for number in (1, 2)]

    def judged(self, order: bool = False, **changed: Any) -> guard.Guarded:
        candidate = observe(partial(train, **changed), states=None if order else self.states)
        exact = guard.judge(self.plain, candidate, again=self.plain, reference=self.plain)
        if exact.verdict == "exact":
            return exact
        return guard.judge(
            self.plain, candidate, again=self.again, reference=None, seeds=self.seeds, order_may_change=order
        )


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return Twins(tmp_path_factory.mktemp("states"))


def test_a_run_against_itself_is_exact(twins: Twins) -> None:
    assert twins.judged().verdict == "exact"


@pytest.mark.parametrize("fault", SIDES)
@pytest.mark.parametrize("late", [0, 12, 29])
def test_a_side_door_is_watched(fault: str, late: int, twins: Twins) -> None:
    if fault == "EMA of another pace" and late == 29:
        pytest.skip("one step at another pace moves it by less than two looks differ")
    found = twins.judged(fault=fault, late=late)
    assert not found.green and any(word in found.reasons[0] for word in ("copy", "random")), found


def test_another_order_of_the_same_samples_is_bounded_where_it_was_asked_for(twins: Twins) -> None:
    assert twins.judged(fault="other order").verdict == "changed"
    found = twins.judged(order=True, fault="other order")
    assert found.verdict == "bounded", found


@pytest.mark.parametrize("fault", ["half the data set", "no augmentation"])
def test_an_order_remedy_may_not_change_what_an_epoch_holds(fault: str, twins: Twins) -> None:
    found = twins.judged(order=True, fault=fault)
    assert found.verdict == "wrong" and any(reason.startswith("epochs") for reason in found.reasons), found


def test_files_that_are_no_longer_written_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain = observe(partial(train, folder=tmp_path))
    assert {step.file_writes for step in plain.steps[:-1]} == {1}
    late = observe(partial(train, "no checkpoint", late=20, folder=tmp_path))
    found = guard.judge(plain, late, again=plain, reference=plain)
    assert found.verdict == "changed" and "files" in found.reasons[0]


def test_lines_are_known_by_their_words() -> None:
    found = printed("step 1 loss 0.5\nstep 2 loss 0.25\nsaved\nstep 3 loss 2.5e-1\n")
    assert found == {"step # loss #": (("1", "0.5"), ("2", "0.25"), ("3", "2.5e-1")), "saved": ((),)}


LOSSES = [4.0 - 0.05 * number for number in range(10)]


@pytest.mark.parametrize(("losses", "verdict"), [
    (LOSSES, "exact"), (LOSSES[:9], "exact"), ([x + 1e-4 for x in LOSSES], "exact"), (LOSSES[:5], "changed"),
    ([*LOSSES[:7], *LOSSES[6:9]], "changed"), ([*LOSSES[:7], *[LOSSES[6]] * 3], "changed"),
])  # fmt: skip
def test_printed_metrics_that_stop_or_are_stale(losses: list[float], verdict: str) -> None:
    import msgspec

    def with_lines(losses: list[float], seconds: str) -> Any:
        text = "\n".join(f"step {number} loss {loss:.4f} in {seconds} s" for number, loss in enumerate(losses))
        return msgspec.structs.replace(seen, printed=printed(text))

    seen = observe(train)
    plain, again, other = with_lines(LOSSES, "0.1"), with_lines(LOSSES, "0.2"), with_lines(losses, "9.3")
    assert guard.judge(plain, other, again=again, reference=plain).verdict == verdict
    if len(losses) > 5:
        assert guard.judge(plain, other, again=again, reference=plain, order_may_change=True).verdict == "exact"


def test_accumulated_batches_in_memory_that_was_let_go_are_inputs() -> None:
    def accumulating(junk: int = 0) -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(16, 16)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        kept = [torch.empty(8, 16) for _ in range(junk)]
        del kept
        for _ in range(30):
            for _ in range(8):
                x = torch.randn(8, 16)
                (model(x) - x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    runs = [observe(partial(accumulating, junk)) for junk in (0, 3)]
    assert {sum(len(call.data.rows) for call in step.calls) for run in runs for step in run.steps} == {64}
    assert guard.judge(runs[0], runs[1], again=runs[1], reference=runs[0]).verdict == "exact"


def test_what_a_model_computed_is_no_input() -> None:
    def chained() -> None:
        torch.manual_seed(0)
        first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        with torch.no_grad():
            for _ in range(4):
                second(first(torch.randn(2, 4)))

    seen = observe(chained)
    assert [step.calls[0].data.num_elements for step in seen.steps[:4]] == [8, 0, 8, 0]


@pytest.mark.parametrize("how", ["module", "in place"])
def test_a_model_that_the_program_compiles_itself_is_seen(how: str) -> None:
    def compiled() -> None:
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = torch.nn.Sequential(torch.nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        called = torch.compile(model, backend="eager") if how == "module" else model
        if how == "in place":
            model.compile(backend="eager")
        for _ in range(31):
            called(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    seen = observe(compiled)
    assert {len(step.calls) for step in seen.steps} == {1} and "Sequential#0.0.weight" in seen.trainable
    assert guard.judge(seen, seen, again=seen, reference=seen).verdict == "exact"


def test_dropout_draws_one_mask_in_any_layout() -> None:
    x = torch.ones(4, 3, 8, 8)
    plain = torch.nn.functional.dropout
    patches = Patches()
    same_masks_in_any_layout(patches)
    try:
        masks = []
        for layout in (torch.contiguous_format, torch.channels_last):
            torch.manual_seed(1)
            masks.append(torch.nn.Dropout(0.3)(x.contiguous(memory_format=layout)))
        torch.manual_seed(1)
        assert torch.equal(masks[0], plain(x, 0.3)) and torch.equal(masks[0], masks[1])
        assert torch.equal(torch.nn.functional.dropout(x, 0.3, training=False), x)
    finally:
        patches.take_out()
    assert torch.nn.functional.dropout is plain


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("packed", [True, False])
def test_without_dropout_there_is_none_between_recurrent_layers(kind: Any, packed: bool) -> None:
    """A remedy that draws other masks was refused on every LSTM with some."""
    torch.manual_seed(0)
    model = kind(4, 8, num_layers=2, dropout=0.5)
    x: Any = torch.rand(5, 3, 4)
    x = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 4, 2])) if packed else x
    patches = Patches()
    dropout.none(patches)
    try:
        found, state = model(x)
        model(x, list(state) if kind is torch.nn.LSTM else state)  # as truncated backpropagation hands it on
    finally:
        patches.take_out()
    assert not torch.equal(_data(model(x)[0]), _data(model(x)[0]))
    model.eval()
    assert torch.equal(_data(found), _data(model(x)[0]))


@pytest.mark.parametrize("name", dropout.DROPOUTS)
def test_without_dropout_what_is_written_into_its_result_stays_there(name: str) -> None:
    """A residual that is added in place broke the backward pass of the plain program, watched without dropout."""
    drop = getattr(torch.nn.functional, name)
    x = torch.rand(2, 3, *[4] * {"dropout1d": 1, "dropout2d": 2, "dropout3d": 3}.get(name, 0))
    plain = {way: drop(x, *way) is x for way in ((0.5, False), (0.0, True), (0.5, True))}
    patches = Patches()
    dropout.none(patches)
    try:
        for way, is_same in plain.items():
            found = getattr(torch.nn.functional, name)(x, *way)
            assert torch.equal(found, x) and (found is x or not is_same)
            assert (found is not x) == (way == (0.5, True))
        assert getattr(torch.nn.functional, name)(x, 0.5, True, True) is x
        as_given = getattr(torch.nn.functional, name)(x) is x
    finally:
        patches.take_out()
    assert as_given == torch.equal(drop(x, 0.5), x)


def _attended(dropout_p: float) -> set[str]:
    q = torch.rand(1, 2, 16, 8)
    with torch.profiler.profile() as seen:
        torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=dropout_p)
    return {each.key for each in seen.key_averages() if "attention_" in each.key}


@pytest.mark.parametrize("dropout_p", [0.0, 0.1])
def test_without_dropout_attention_takes_the_way_that_it_takes_with_it(dropout_p: float) -> None:
    """In a lower precision torch's kernel for a CPU, which knows no dropout, is not what the program runs."""
    plain, patches = _attended(dropout_p), Patches()
    dropout.none(patches)
    try:
        assert _attended(dropout_p) == plain
        q = torch.rand(1, 2, 16, 8)
        first, second = (torch.nn.functional.scaled_dot_product_attention(q, q, q, None, dropout_p) for _ in range(2))
        assert torch.equal(first, second)
    finally:
        patches.take_out()


COMPILED = """
import torch
from gobrrr.capture.hooks.lookup import Patches
from gobrrr.guard.watch import dropout

dropout.none(Patches())
model = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
attend = lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
for called in (model, attend):
    x = torch.rand(2, 4, 8)
    torch.testing.assert_close(torch.compile(called, backend="eager", fullgraph=True)(x), called(x))
"""


def test_what_is_compiled_is_compiled_without_dropout_too() -> None:
    """Dynamo asks all functions of torch for their names, once in a process, ours as well."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]


def _data(output: Any) -> Any:
    return output.data if isinstance(output, torch.nn.utils.rnn.PackedSequence) else output


def test_an_order_remedy_with_wrong_gradients_is_not_green() -> None:
    def turned(order: bool = False, factor: float = 1.0) -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        data = torch.utils.data.TensorDataset(torch.arange(512.0).reshape(64, 8).sin())
        if order:
            torch.rand(3)
        for _ in range(8):
            for (batch,) in DataLoader(data, 16, shuffle=True):
                optimizer.zero_grad()
                (model(batch) - batch[:, :4] - 3).square().mean().backward()
                for parameter in model.parameters():
                    parameter.grad.mul_(factor)
                optimizer.step()

    assert guard.compare(turned, partial(turned, order=True), order_may_change=True).verdict == "bounded"
    assert not guard.compare(turned, partial(turned, order=True, factor=-1.0), order_may_change=True)


def test_samples_are_of_all_columns_and_rows() -> None:
    from gobrrr.guard.watch.digest import SAMPLED, sampled

    for shape in ((768, 768), (3072, 768), (8, 128, 768), (300,)):
        at = sampled(torch.arange(torch.Size(shape).numel()).reshape(shape))
        assert len(at) == SAMPLED == len(set(at.tolist())) and len(set((at % shape[-1]).tolist())) > SAMPLED // 2
    channels = torch.randn(4, 8, 16, 16)
    assert torch.equal(sampled(channels), sampled(channels.contiguous(memory_format=torch.channels_last)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8])
def test_a_device_s_own_digest_tells_every_change(dtype: torch.dtype) -> None:
    """An element more, another one, two in turn, two signs at once (of doubles the highest bit alone), all of it in
    another shape."""
    from gobrrr.guard.watch.digest import digest_there

    values = torch.randn(5_000_001).mul(50).to(dtype)
    found, others = digest_there(values), [values[:-1]]
    for at in (0, 4_194_303, 5_000_000):
        others.append(values.clone())
        others[-1][at] = values[at] + values[at].abs() + 1
    others.append(values.clone())
    others[-1][:2] = torch.tensor([3, 5])
    others.append(others[-1].clone())
    others[-1][:2] = others[-2][:2].flip(0)
    if dtype.is_floating_point:
        others.append(values.clone())
        others[-1][100:102] *= -1
    others.append(values.clone())
    others[-1][[0, 4_194_304]] = values[[4_194_304, 0]] if values[0] != values[4_194_304] else values[0] + 1
    told = [digest_there(each) for each in others]
    assert digest_there(values.clone()) == found and len({found, *told}) == len(told) + 1
    assert digest_there(values[:0]) != digest_there(values[:1])
    assert digest_there(values[1:]) == digest_there(values[1:].clone()), "wherever it begins"


@pytest.mark.parametrize("bad", [False, True])
def test_what_is_read_on_a_device_is_what_is_read_here(bad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.guard.watch import digest as look

    values = torch.randn(700, 900)
    if bad:
        values[0, 3], values[699, 5] = torch.nan, -torch.inf
    here = look.look(values)
    monkeypatch.setattr(look, "_is_read_there", lambda _: True)
    there = look.look(values)
    assert there.digest == look.digest_there(values) != here.digest
    assert replace(there, digest="") == replace(here, digest="") and there.num_bad == 2 * bad
    finite = torch.where(torch.isfinite(values), values, 0.0).double()
    assert there.norm == pytest.approx(float(finite.norm()))


def test_an_update_of_complex_numbers_is_looked_at_in_both_parts() -> None:
    from gobrrr.guard.watch.step_log import update

    weight = torch.randn(20, 20, dtype=torch.complex64)
    moved = weight + 0.5j
    assert update(moved, weight).norm == pytest.approx(10.0, rel=1e-6)


def test_what_stands_for_another_tensor_has_its_digest_and_dtype() -> None:
    from gobrrr.guard.watch.digest import digest, look

    change, weight = torch.randn(600, 700), torch.randn(600, 700).bfloat16()
    alone, found = look(change), look(change, of=weight)
    assert (found.digest, found.dtype) == (digest(weight), "bfloat16") and found.digest != alone.digest
    assert (found.norm, found.sketch, found.shape) == (alone.norm, alone.sketch, alone.shape)


def test_a_step_s_beginning_is_set_whole(tmp_path: Path) -> None:
    import random

    states, named = States(tmp_path, keeps=True), {"w": torch.randn(3, 4), "steps": 7, "half": torch.ones(2).bfloat16()}
    torch.manual_seed(5)
    random.seed(5)
    states.keep(3, named)
    drawn = torch.rand(2), random.random()
    other = {"w": torch.zeros(3, 4, dtype=torch.float64), "steps": 7, "half": torch.zeros(2).bfloat16()}
    played = States(tmp_path, keeps=False)
    assert played.has(3) and not played.has(4) and played.begin_from(3, other) == []
    assert torch.equal(other["w"], named["w"].double()) and torch.equal(other["half"], named["half"])
    assert torch.equal(torch.rand(2), drawn[0]) and random.random() == drawn[1]
    assert played.begin_from(3, {"w": torch.zeros(4, 3), "steps": 8}) == ["w", "steps", "half"]


def test_a_parameter_that_the_step_s_graph_holds_already_may_be_set() -> None:
    def regularised(fused: bool = False) -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=fused)
        for _ in range(31):
            optimizer.zero_grad()
            penalty = sum(p.square().sum() for p in model.parameters())
            (1e-3 * penalty + model(torch.randn(16, 64)).square().mean()).backward()
            optimizer.step()

    assert guard.compare(regularised, partial(regularised, fused=True)).verdict in ("exact", "equivalent")


def test_parameters_that_no_model_names_have_names_of_their_own() -> None:
    def raw() -> None:
        torch.manual_seed(0)
        first, second = torch.randn(3, requires_grad=True), torch.randn(5, requires_grad=True)
        optimizers = [torch.optim.SGD([p], 0.1) for p in (first, second)]
        for _ in range(16):
            (first.square().sum() + second.square().sum()).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    seen = observe(raw)
    assert {name for step in seen.steps for name in step.gradients or {}} == {"SGD#0.0.0", "SGD#1.0.0"}
    assert guard.judge(seen, seen, again=seen, reference=seen).verdict == "exact"


def test_checkpoints_of_torch_save_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def saving(until: int = 99) -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for number in range(31):
            model(torch.randn(2, 2)).sum().backward()
            optimizer.step()
            if number < until:
                torch.save(number, "checkpoint.pt")

    opener = torch.serialization._open_zipfile_writer
    found = guard.compare(saving, partial(saving, 16))
    assert found.verdict == "changed" and found.reasons[0].startswith("files"), found
    assert torch.serialization._open_zipfile_writer is opener


@pytest.mark.parametrize("other", ["names", "dtypes", "shapes", ""])
def test_checkpoints_keep_their_names_and_dtypes(other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def saving(other: str = "") -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for number in range(31):
            model(torch.randn(2, 2)).sum().backward()
            optimizer.step()
            state = {n: p.detach().clone() for n, p in reversed(model.state_dict().items())}
            if number > 20 and other == "names":
                state["_orig_mod.weight"] = state.pop("weight")
            elif number > 20 and other == "dtypes":
                state["weight"] = state["weight"].bfloat16()
            elif number > 20 and other == "shapes":
                state["weight"] = state["weight"][:1]
            torch.save({"model": state, "rest": [number, optimizer.state_dict()]}, "checkpoint.pt")

    save = torch.serialization._save
    found = guard.compare(saving, partial(saving, other))
    assert found.verdict == ("changed" if other else "exact"), found
    assert not other or "other names, shapes or dtypes" in found.reasons[0]
    assert torch.serialization._save is save


@pytest.mark.parametrize("lost", ["moments", "count", "grown"])
def test_an_optimizer_that_loses_its_state_after_the_update_is_caught(lost: str) -> None:
    def adam(spoil: bool = False) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for number in range(30):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            for state in optimizer.state.values() if spoil and number > 9 else ():
                if lost == "moments":
                    state["exp_avg"].zero_()
                elif lost == "count":
                    state["step"].fill_(1)
                else:
                    state["exp_avg_sq"].mul_(1.5)

    found = guard.compare(adam, partial(adam, True))
    assert not found.green and "optimizer state" in " ".join(found.reasons), found


def _one_optimizer_each(backwards: bool = False, still: bool = False) -> None:
    """As Pyro has it, in the order of a set: another in every process. `still`: one of them stops."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    tensors = list(model.parameters())[:: -1 if backwards else 1]
    optimizers = [torch.optim.Adam([tensor], 1e-3) for tensor in tensors]
    for number in range(30):
        model(torch.randn(16, 8)).square().mean().backward()
        for at, optimizer in enumerate(optimizers):
            if not (still and number > 9 and at == 2):
                optimizer.step()
        for tensor in tensors:
            tensor.grad.zero_()


def test_optimizers_that_update_one_after_the_other_make_one_step() -> None:
    assert len(observe(_one_optimizer_each).steps) == 30
    assert guard.compare(_one_optimizer_each, partial(_one_optimizer_each, True)).verdict == "exact"
    found = guard.compare(_one_optimizer_each, partial(_one_optimizer_each, True, True))
    assert found.verdict == "wrong", found


def test_tensors_of_no_one_shape_are_no_copies() -> None:
    """A nested tensor raises when it is asked for its shape; a sparse one has no storage."""
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    sparse, copy = torch.eye(3).to_sparse(), torch.eye(3)
    found = copies([nested, sparse, copy], {(3, 3)}, set())
    assert "(3, 3)" in found and nested.is_nested and sparse.is_sparse and copy.sum() == 3


def test_copies_that_were_frozen_are_found() -> None:
    """gc.freeze() takes them from gc.get_objects(): an EMA that moves must not be called still for it."""

    def averaged(freezes: bool, stops: int = 99) -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 8, bias=False)
        shadow = model.weight.detach().clone()
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for number in range(31):
            if freezes and number == 1:
                gc.freeze()
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            if number < stops:
                shadow.lerp_(model.weight.detach(), 0.1)

    assert guard.compare(partial(averaged, False), partial(averaged, True)).green
    found = guard.compare(partial(averaged, False), partial(averaged, True, 12))
    assert found.verdict == "wrong" and "copy" in found.reasons[0]


def test_an_evaluation_after_the_last_update_is_judged() -> None:
    def evaluated(training: bool = False) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for _ in range(31):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
        model.train(training)
        with torch.no_grad():
            model(torch.randn(16, 8))

    assert guard.compare(evaluated, evaluated).verdict == "exact"
    assert not guard.compare(evaluated, partial(evaluated, True))


def test_a_gradient_that_is_rounding_may_be_zero_by_luck() -> None:
    from gobrrr.guard.model.tensor_digest import scalar
    from gobrrr.guard.verdicts.structure import _more_than_rounding

    assert _more_than_rounding({"weight": scalar(1.0), "bias": scalar(1e-9), "small": scalar(1e-3)}) == [
        "weight",
        "small",
    ]


class OwnDraws(Dataset):
    """Augmented from a generator that it keeps, as MONAI's transforms do; `shared`: from torch's."""

    def __init__(self, shared: bool = False, plain: bool = False) -> None:
        self._generator = None if shared else torch.Generator().manual_seed(0)
        self._plain = plain

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), float(index)) + (0 if self._plain else torch.rand(4, generator=self._generator))


def epochs_of(data: OwnDraws) -> Any:
    watched, patches = Epochs(), Patches()
    watched.watch(patches)
    try:
        for _ in DataLoader(data, batch_size=4):
            pass
    finally:
        patches.take_out()
    return watched.read()


def test_samples_with_draws_of_their_own_are_not_held_against_each_other() -> None:
    """With loader workers the generator of the process that is asked is another one than it was."""
    own, shared, plain = (epochs_of(data) for data in (OwnDraws(), OwnDraws(shared=True), OwnDraws(plain=True)))
    assert own[0].draws_alone and not own[0].items and own[0].indices and not shared[0].draws_alone

    def judged(baseline: Any, candidate: Any) -> str:
        runs = [Observation(epochs=epochs) for epochs in (baseline, candidate, baseline)]
        return side_effects._epochs(*runs, order_may_change=True).verdict

    assert judged(own, epochs_of(OwnDraws())) == "bounded" and judged(shared, shared) == "exact"
    assert judged(own, plain) == "wrong" and judged(plain, own) == "wrong" and judged(shared, plain) == "wrong"


@pytest.mark.parametrize(("lost", "verdict"), [(False, "exact"), (True, "wrong")])
def test_batches_that_lose_samples_of_their_sampler_are_caught(
    lost: bool, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bucketing makes other batches of what a sampler draws: so the batches are asked."""
    data = OwnDraws(plain=True)
    plain, drawn = epochs_of(data), BatchSampler.__iter__

    def batches(sampler: Any) -> Any:
        return (batch[:1] * len(batch) if lost else batch[::-1] for batch in drawn(sampler))

    monkeypatch.setattr(BatchSampler, "__iter__", batches)
    runs = [Observation(epochs=epochs) for epochs in (plain, epochs_of(data), plain)]
    assert side_effects._epochs(*runs, order_may_change=True).verdict == verdict


def test_means_of_inputs_count_each_call_by_its_elements() -> None:
    """Sequences of like length: many short calls of small ids and few long ones of large ids are the same epoch."""

    def run(*moments: tuple[float, float, float]) -> Observation:
        calls = [Call("m", True, Data("d", moments=each)) for each in moments]
        return Observation(steps=tuple(Step(calls=(call,)) for call in calls))

    mixed = run(*[(5.0, 1.0, 40.0), (5.2, 1.0, 42.0)] * 15)
    by_length = run(*[(1.0, 1.0, 10.0)] * 27, *[(10.0, 1.0, 75.3)] * 3)  # 5.1 of all, as there; 1.9 of the calls
    assert side_effects._moments(mixed, by_length).verdict == "exact"
    assert side_effects._moments(mixed, run(*[(4.0, 1.0, 40.0), (4.2, 1.0, 42.0)] * 15)).verdict == "wrong"


@pytest.mark.parametrize(("elements", "told"), [(93.0, True), (98.0, False)])
def test_padding_that_no_mask_shows_is_named_where_it_has_gone(elements: float, told: bool) -> None:
    """Zeros that are gone move the mean, as other samples would: only the second is a riddle."""

    def run(mean: float, num: float) -> Observation:
        calls = [Call("m", True, Data("d", moments=(mean + 0.01 * n, 1.0, num))) for n in range(30)]
        return Observation(steps=tuple(Step(calls=(call,)) for call in calls))

    found = side_effects._moments(run(1.0, 100.0), run(2.0, elements))
    assert found.verdict == "wrong" and "the mean of what models are given is 2.1" in found.reason
    assert ("it is given 7% fewer elements, as if padding had gone" in found.reason) == told


def test_the_error_of_equal_weights_is_the_usual_one() -> None:
    values = [1.0, 2.0, 4.0, 9.0]
    mean, error = side_effects._weighted([(value, 3.0) for value in values])
    assert mean == pytest.approx(statistics.fmean(values)) and error == pytest.approx(statistics.stdev(values) / 2)


@pytest.mark.parametrize("how", [{"batch_size": 4}, {"batch_size": None}])
def test_a_sample_that_a_remedy_gives_instead_is_seen(how: dict[str, Any]) -> None:
    """Items are fetched as the loader's fetcher does it, in which remedies stand; the data set itself knows of none."""
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    def epoch(wrong: bool) -> Any:
        loader, patches, plain = DataLoader(torch.arange(8), **how), Patches(), _MapDatasetFetcher.fetch
        watched = Epochs()
        watched.watch(patches)
        list(loader)
        if wrong:
            patches.replace(_MapDatasetFetcher, "fetch", lambda self, asked: changed(plain(self, asked)))
        found = watched.read()
        patches.take_out()
        return found[0].items

    def changed(given: Any) -> Any:
        return [each + 1 for each in given] if isinstance(given, list) else given + 1

    plain, wrong = epoch(False), epoch(True)
    assert len(plain) == 8 and plain == epoch(False)
    assert [wrong[str(n)] for n in range(7)] == [plain[str(n + 1)] for n in range(7)]


def test_items_of_a_data_set_that_gives_batches_in_one_piece_are_digested() -> None:
    class Whole(Dataset):
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> Any:
            return {"x": torch.tensor(index)}

        def __getitems__(self, indices: list[int]) -> Any:
            return {"x": torch.tensor(indices)}

    class Single(Whole):
        __getitems__: Any = None

    patches, watched = Patches(), Epochs()
    watched.watch(patches)
    list(DataLoader(Whole(), batch_size=4, collate_fn=lambda batch: batch))
    list(DataLoader(Single(), batch_size=4))
    found, single = watched.read()
    patches.take_out()
    assert found.num == found.unique == 12 and len(found.items) == 8
    assert found.batch == single.batch is not None, "the same samples, in another form"


def test_random_streams_begin_as_the_program_would_begin_them_and_no_device_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch.manual_seed leaves its seed to every kind of device that is used later: the program's own would be gone."""

    def all_three() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    plain = all_three()
    monkeypatch.setattr(torch.cuda.random, "_lazy_call", lambda *args, **kwargs: pytest.fail("a device was told"))
    begin(5)
    assert all_three() == plain
    told: list[int] = []
    monkeypatch.setattr(randomness, "cuda_in_use", lambda: SimpleNamespace(manual_seed_all=told.append))
    begin(6)
    assert told == [6], "one that is in use begins with the others"
