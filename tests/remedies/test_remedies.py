"""Remedies on live programs: what they change, that they undo it, and that the numbers are those they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr import rules  # noqa: E402
from gobrrr.errors import GobrrrError  # noqa: E402
from gobrrr.remedies import registry  # noqa: E402
from gobrrr.remedies.edits import catalogue  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402
from gobrrr.remedies.model import PLACES, SAFETY  # noqa: E402


def train(steps: int = 6, dtype: Any = None, kind: str = "AdamW") -> list[Any]:
    """Losses and final parameters of a small training, always the same."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)).to(dtype)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.05)
    found = []
    for _ in range(steps):
        x = torch.randn(8, 16).to(dtype)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.detach().clone())
    return found + [p.detach().clone() for p in model.parameters()]


def under(*names: str, **fields: Any) -> tuple[list[Any], dict[str, str]]:
    said: dict[str, str] = {}
    seams = Seams(lambda name, detail: said.update({name: detail}))
    install(seams, names)
    try:
        return train(**fields), said
    finally:
        seams.remove()


def surroundings() -> list[Any]:
    from torch.nn.modules import module
    from torch.optim import optimizer
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    return [
        torch.get_float32_matmul_precision(), torch.get_num_threads(), torch.is_anomaly_enabled(), DataLoader.__init__,
        _BaseDataLoaderIter.__next__,
        len(optimizer._global_optimizer_pre_hooks), len(module._global_forward_pre_hooks),
        float(torch.tensor(1e-39) * 0.5),
    ]  # fmt: skip


HERE = [name for name in registry.names() if not registry.remedy(name).probe()]
"""Those that this machine can apply."""
OTHERS = [name for name in registry.names() if name not in HERE]


def with_safety(safety: str) -> list[str]:
    return [n for n in HERE if registry.remedy(n).safety == safety and not registry.remedy(n).precision]


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_applied_here_says_why_and_leaves_nothing_behind(name: str) -> None:
    before = surroundings()
    with pytest.raises(GobrrrError, match=f"{name} cannot be applied here"):
        under(name)
    assert surroundings() == before


@pytest.mark.parametrize("name", HERE)
def test_everything_is_as_before_when_a_remedy_is_taken_away(name: str) -> None:
    before, plain = surroundings(), train()
    under(name)
    assert surroundings() == before
    assert all(torch.equal(a, b) for a, b in zip(plain, train(), strict=True))


@pytest.mark.parametrize("name", registry.names())
def test_a_remedy_says_what_it_is(name: str) -> None:
    remedy = registry.remedy(name)
    assert remedy.name == name and remedy.safety in SAFETY and remedy.place in PLACES
    assert remedy.title and remedy.by_hand


def test_what_there_is_can_be_listed_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None\nfrom gobrrr.cli.main import main; sys.exit(main(['remedies']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "computed_once" in done.stdout, done.stderr


@pytest.mark.parametrize("name", with_safety("exact"))
def test_what_is_called_exact_is_bitwise_equal(name: str) -> None:
    numbers, _ = under(name)
    assert all(torch.equal(a, b) for a, b in zip(train(), numbers, strict=True))


@pytest.mark.parametrize("name", with_safety("tolerance"))
@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_what_is_called_tolerance_errs_at_most_twice_as_much_as_the_plain_run(name: str, kind: str) -> None:
    """Against float64; a floor of a few roundings where the plain run happens to be exact."""
    numbers, _ = under(name, kind=kind)
    for plain, changed, true in zip(train(kind=kind), numbers, train(dtype=torch.float64, kind=kind), strict=True):
        scale = true.abs().max().item()
        error, usual = ((each.double() - true).abs().max().item() for each in (changed, plain))
        assert error <= 2 * usual + 4e-7 * scale


def test_the_fused_kernel_is_really_used() -> None:
    _, said = under("fused_optimizer")
    assert said == {"fused_optimizer": "AdamW, 1 of 1 groups"}
    with torch.profiler.profile() as profile:
        under("fused_optimizer")
    assert "aten::_fused_adamw_" in {event.name for event in profile.events()}


@pytest.mark.parametrize("kind", ["Rprop", "LBFGS"])
def test_an_optimizer_without_a_fused_kernel_is_left_alone(kind: str) -> None:
    said: dict[str, str] = {}
    seams = Seams(lambda name, detail: said.update({name: detail}))
    install(seams, ["fused_optimizer"])
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = getattr(torch.optim, kind)([parameter])
    parameter.grad = torch.ones(3)
    optimizer.step(lambda: parameter.square().sum())
    seams.remove()
    assert said == {} and not optimizer.param_groups[0].get("fused")


def test_workers_persist_where_there_are_any() -> None:
    from torch.utils.data import DataLoader

    said: dict[str, str] = {}
    seams = Seams(lambda name, detail: said.update({name: detail}))
    install(seams, ["persistent_workers"])
    without, with_workers = DataLoader([1, 2]), DataLoader([1, 2], num_workers=1)
    assert not without.persistent_workers and with_workers.persistent_workers
    seams.remove()
    assert not DataLoader([1, 2], num_workers=1).persistent_workers


def test_anomaly_mode_goes_off_once_the_program_has_switched_it_on() -> None:
    seams = Seams()
    install(seams, ["anomaly_off"])
    with torch.autograd.set_detect_anomaly(True):
        train(1)
        assert not torch.is_anomaly_enabled()
        seams.remove()
        assert torch.is_anomaly_enabled()


def test_anomaly_mode_stays_off_each_time_and_ends_as_the_program_ended_it() -> None:
    seams = Seams()
    install(seams, ["anomaly_off"])
    for _ in range(2):
        with torch.autograd.detect_anomaly():
            train(1)
            assert not torch.is_anomaly_enabled()
    seams.remove()
    assert not torch.is_anomaly_enabled()
    assert "NaN" in registry.remedy("anomaly_off").unseen


def test_conflicts_and_unknown_names_are_loud_and_leave_nothing_behind() -> None:
    before = surroundings()
    for names in (["one_worker", "loader_workers"], ["matmul_precision", "elixir"]):
        with pytest.raises(GobrrrError):
            install(Seams(), names)
    assert surroundings() == before


def test_an_edit_is_told_from_a_remedy_and_applied_to_nothing() -> None:
    assert not {*registry.names()} & {*registry.edit_names()}
    for ask in (registry.remedy, lambda name: registry.environment([name]), lambda name: install(Seams(), [name])):
        with pytest.raises(GobrrrError, match="freeze_unused is an edit now") as refused:
            ask("freeze_unused")
        assert "gobrrr explain freeze_unused" in (refused.value.hint or "")


def test_remedies_act_in_their_order_whatever_the_order_of_their_names() -> None:
    wanted = ["persistent_workers", "fused_optimizer", "malloc_thresholds", "matmul_precision"]
    one, other = registry.composed(wanted), registry.composed(reversed(wanted))
    assert [r.name for r in one] == [r.name for r in other]
    places = [PLACES.index(r.place) for r in one]
    assert places == sorted(places)


def test_rules_name_remedies_that_there_are_and_these_know_it() -> None:
    for code, rule in rules.load().items():
        for name in rule.remedies:
            if name in registry.edit_names():
                assert catalogue.edit(name).name == name
            else:
                assert code in registry.remedy(name).codes
    assert registry.remedy("pin_memory").codes == ("BRR502",)


def test_what_cannot_be_applied_is_known_before_anything_is_tried() -> None:
    from gobrrr.remedies.mechanism.applying import unable

    assert set(unable(registry.names())) == set(OTHERS)
    assert unable(registry.names(), "/nowhere/python") == {}


WATCHED = """
import sys, torch
from gobrrr.capture.process.config import Config
from gobrrr.remedies.mechanism.applying import Treated
before = torch.nn.Module.__dict__["__call__"]
session = Treated(Config(sys.argv[1], remedies="sdpa_attention"))
model, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
want = model(x)
session.begin()
assert torch.nn.Module.__call__ is before
for _ in range(4):
    assert torch.equal(model(x), want)
assert session.recorder.modules.number(model) == 0 and session.hooks.num_lookups >= 4
session.end()
assert not session._failure
"""


def test_a_recipe_for_models_and_the_watching_stand_behind_each_other(tmp_path: Path) -> None:
    """gobrrr run --recipe: both look at Module.__call__, which stays the plain function to whoever asks the class.
    In a process of its own, since a recipe is for all of it."""
    done = subprocess.run([sys.executable, "-c", WATCHED, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
