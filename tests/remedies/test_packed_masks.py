"""Masks that are packed: the chances are right, elements know nothing of each other, and the generator counts on."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from gobrrr.remedies.layers.mask_bits import fill  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402
from gobrrr.remedies.registry import remedy  # noqa: E402
from gobrrr.rules.compute.random_numbers import LEAST, RARE  # noqa: E402
from tests.support.patching import patched  # noqa: E402

REMEDY = remedy("packed_masks")
pytestmark = pytest.mark.skipif(bool(REMEDY.probe()), reason=REMEDY.probe())
MANY = 1 << 20


@contextlib.contextmanager
def applied() -> Iterator[list[str]]:
    said: list[str] = []
    seams = Seams(lambda remedy, detail: said.append(detail))
    install(seams, ["packed_masks"])
    try:
        yield said
    finally:
        seams.remove()


def drawn(*shape: int, p: float = 0.9, **options: Any) -> Any:
    torch.manual_seed(3)
    return torch.empty(shape, **options).bernoulli_(p)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_chance_is_what_was_asked_for(p: float, dtype: Any) -> None:
    torch.manual_seed(0)
    mask = fill(torch.empty(MANY + 3, dtype=dtype), p)
    assert mask.dtype == dtype and set(mask.unique().tolist()) == {0.0, 1.0}
    deviation = (p * (1 - p) / mask.numel()) ** 0.5
    assert abs(mask.double().mean().item() - p) < 5 * deviation
    lanes = mask[:MANY].double().view(-1, 4).mean(0)  # the four that one number makes
    assert (lanes - p).abs().max() < 5 * 2 * deviation


def test_every_number_of_sixteen_bits_counts_as_often_as_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 65,536 of them, once each, instead of the generator's."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.int64)
    monkeypatch.setattr(torch.Tensor, "random_", lambda self, *_, **__: self.copy_(every))
    for p in (0.01, 0.1, 1 / 3, 0.5, 0.9, 0.99):
        assert fill(torch.empty(2**16), p).sum().item() == round(p * 2**16)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 5, 256])
def test_neighbours_know_nothing_of_each_other(lag: int) -> None:
    torch.manual_seed(1)
    mask = fill(torch.empty(MANY), 0.7).double() - 0.7
    correlation = (mask[lag:] * mask[:-lag]).mean() / (0.7 * 0.3)
    assert abs(correlation.item()) < 5 / MANY**0.5


def test_small_strided_and_rare_ones_are_those_that_torch_draws() -> None:
    def each() -> list[Any]:
        return [
            drawn(LEAST - 1), drawn(8, LEAST)[:, ::2].bernoulli_(0.5), drawn(2 * LEAST, p=0.995),
            drawn(2 * LEAST, dtype=torch.int32), drawn(2 * LEAST, p=0.0), drawn(2 * LEAST, p=1.0),
        ]  # fmt: skip

    plain = each()[:1] + each()[2:]
    with applied():
        found = each()[:1] + each()[2:]
        strided = torch.ones(8, LEAST)[:, ::2]
        torch.manual_seed(3)
        strided.bernoulli_(0.5)
    torch.manual_seed(3)
    assert torch.equal(strided, torch.ones(8, LEAST)[:, ::2].bernoulli_(0.5))
    assert all(torch.equal(one, other) for one, other in zip(plain, found, strict=True))


def attended() -> Any:
    torch.manual_seed(0)
    head = torch.randn(2, 4, 64, 64)
    return functional.scaled_dot_product_attention(head, head, head, dropout_p=0.1)


def test_what_draws_in_c_uses_it_and_afterwards_nothing_does() -> None:
    plain, attention = drawn(LEAST), attended()
    with applied() as said:
        assert len(said) == 1, "at once: where dropout is off no mask is drawn"
        assert not torch.equal(attended(), attention) and torch.equal(attended(), attended())
        torch.manual_seed(3)
        assert torch.equal(functional.dropout(torch.ones(LEAST), 0.1).bool(), drawn(LEAST).bool())
    assert torch.equal(drawn(LEAST), plain) and torch.equal(attended(), attention)


def test_masks_are_drawn_here_whatever_the_default_device_is() -> None:
    with applied(), torch.device("meta"):
        ones = torch.ones(LEAST, device="cpu")
        assert abs(functional.dropout(ones, 0.1).mean().item() - 1) < 0.02


def test_the_page_shows_the_patch() -> None:
    page = (Path(__file__).parents[2] / "src/gobrrr/remedies/layers/packed_masks.md").read_text()
    assert all(f"    {line}\n" in page for line in REMEDY.by_hand.splitlines() if line)
    assert str(LEAST) in REMEDY.by_hand and f"{RARE} <= p <= {1 - RARE}" in REMEDY.by_hand


def test_a_torch_that_draws_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "random_", lambda self, *_, **__: self.zero_())
    assert "other masks" in REMEDY.probe()


def test_seeds_and_generators_count() -> None:
    with applied():
        one, same, other = (
            torch.empty(LEAST).bernoulli_(0.5, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)
        )
        assert torch.equal(one, same) and not torch.equal(one, other)
        torch.manual_seed(0)
        state = torch.get_rng_state()
        torch.empty(LEAST).bernoulli_(0.5)
        assert not torch.equal(torch.get_rng_state(), state), "the next mask is another one"


def test_a_layer_that_is_computed_again_drops_the_same() -> None:
    layer, x = nn.Sequential(nn.Linear(256, 256), nn.Dropout(0.2)), torch.randn(128, 256)
    grads = []
    with applied():
        for run in (layer, lambda x: checkpoint(layer, x, use_reentrant=False)):
            torch.manual_seed(0)
            layer.zero_grad()
            run(x).square().sum().backward()
            grads.append(layer[0].weight.grad.clone())
    assert torch.equal(*grads)


TRAINS = '''"""Trains a little."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Dropout(0.25), nn.Linear(256, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = net(torch.ones(256, 32)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.9f}")
'''
UNDER = """
import runpy
from gobrrr.remedies.mechanism.applying import install
from gobrrr.remedies.mechanism.seams import Seams
install(Seams(lambda *said: None, print), ["packed_masks"])
runpy.run_path("train.py")
"""


@pytest.mark.slow
def test_a_program_that_was_patched_draws_what_the_remedy_draws(tmp_path: Path) -> None:
    def printed(*command: str) -> str:
        return subprocess.run(
            [sys.executable, *command], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "patched.py").write_text(patched(TRAINS, [REMEDY.edit]))
    found = printed("patched.py")
    assert found == printed("-c", UNDER) and found != printed("train.py")


@pytest.mark.parametrize("way", ["remedy", "patch"])
def test_a_forked_child_draws_as_torch_does(way: str) -> None:
    """Ours are ops of several threads, whose pool a fork leaves behind: torch draws in one, and did not hang."""
    code = """
import os, torch
{begin}
torch.nn.functional.dropout(torch.ones(1 << 18), 0.5).add_(1)
if not (child := os.fork()):
    torch.empty(1 << 18).bernoulli_(0.5)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    begin = {"remedy": UNDER.rpartition("runpy.")[0].replace("import runpy", ""), "patch": REMEDY.by_hand}[way]
    code = code.replace("{begin}", begin)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split()[-1:] == ["7"], done.stderr
