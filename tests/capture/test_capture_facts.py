"""Facts of live objects."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

torch = pytest.importorskip("torch")

from gobrrr.capture.facts import program_facts  # noqa: E402
from gobrrr.capture.session.recorder import Registry  # noqa: E402
from gobrrr.recording.model.facts import CompileFacts, Facts, ModuleFacts, OptimizerFacts, Settings  # noqa: E402
from gobrrr.recording.run_folder.noted_facts import _MEMORY  # noqa: E402
from gobrrr.system import processes  # noqa: E402


def recorder(*modules: Any) -> Any:
    registry = Registry()
    for module in modules:
        registry.number(module)
    return SimpleNamespace(modules=registry)


def test_parameters_of_a_part_are_those_of_the_whole() -> None:
    encoder = torch.nn.Linear(10, 10, bias=False)
    whole = torch.nn.Sequential(encoder, torch.nn.Linear(10, 1, bias=False))
    other = torch.nn.Linear(3, 1, bias=False)
    first, second, third = program_facts.modules(recorder(whole, encoder, other))
    assert (first["param_bytes"], first["shared_param_bytes"]) == (440, 0)
    assert (second["param_bytes"], second["shared_param_bytes"]) == (400, 400)
    assert (third["param_bytes"], third["shared_param_bytes"]) == (12, 0)
    first, second = program_facts.modules(recorder(encoder, whole))
    assert (first["shared_param_bytes"], second["shared_param_bytes"]) == (0, 400)


@pytest.mark.parametrize("shape", ["settings", "modules", "optimizers", "compile"])
def test_what_capture_writes_are_fields_of_what_recording_reads(shape: str) -> None:
    """A key that nobody reads would be left out without a word. Read raw: a compiled program's frames and its time."""
    net = torch.nn.Linear(2, 2)
    seen = recorder(net)
    seen.optimizers, seen.update_spans = Registry(), {}
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    seen.optimizers.number(optimizer)
    written, kind = {
        "settings": (program_facts.settings([], {}), Settings),
        "modules": (program_facts.modules(seen)[0], ModuleFacts),
        "optimizers": (program_facts.optimizers(seen)[0], OptimizerFacts),
        "compile": (compiled(), CompileFacts),
    }[shape]
    read_raw = {"frames", "compile_ns"} if shape == "compile" else set()
    assert set(written) - read_raw <= set(kind.__struct_fields__)
    msgspec.convert(written, kind)  # raises where a value is of another type


def test_a_setting_that_is_not_told_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> bool:
        raise RuntimeError("mixed")

    monkeypatch.setattr(torch, "is_anomaly_enabled", refuses)
    errors: dict[str, str] = {}
    found = program_facts.settings([], errors)
    assert errors == {"settings.anomaly": "RuntimeError: mixed"}
    assert "anomaly" not in found and found["threads"] == torch.get_num_threads()


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
@pytest.mark.parametrize("cleared", [False, True])
def test_an_optimizer_updates_what_is_not_frozen(kind: str, cleared: bool) -> None:
    """As peft's users have it: all parameters are given, and nearly all are frozen."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2, bias=False))
    net[0].requires_grad_(False)
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.1)
    net(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    if cleared:
        optimizer.zero_grad()
    seen = SimpleNamespace(optimizers=Registry(), update_spans={})
    seen.optimizers.number(optimizer)
    (found,) = program_facts.optimizers(seen)
    assert (found["num_tensors"], found["num_elements"], found["shapes"]) == (1, 16, [((2, 8), 1)])


@pytest.mark.filterwarnings("error")
def test_parameters_that_are_computed_are_not_asked_for_a_gradient() -> None:
    """learn2learn's clone_module: torch warns of .grad of what is no leaf, on the program's stderr."""
    net, other = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(2, 2, bias=False)
    clone = torch.nn.Linear(4, 4, bias=False)
    clone._parameters["weight"] = net.weight.clone()
    optimizer = torch.optim.SGD(other.parameters())
    clone(torch.ones(1, 4)).sum().backward()
    seen = recorder(clone, net)
    seen.optimizers = Registry()
    seen.optimizers.number(optimizer)
    found = program_facts.orphans(seen)
    assert found is not None and found["num_elements"] == 16


def test_gradients_that_an_earlier_training_left_are_no_orphans() -> None:
    """An encoder is trained, then a head on what it gives: it keeps its last gradients."""
    encoder, stem, head = (torch.nn.Linear(4, 4, bias=False) for _ in range(3))
    encoder(torch.ones(1, 4)).sum().backward()
    seen = recorder(encoder, stem, head)
    seen.optimizers = Registry()
    optimizer = torch.optim.SGD(head.parameters())
    seen.optimizers.number(optimizer)
    head(stem(encoder(torch.ones(1, 4)).detach())).sum().backward()
    reached = {id(stem.weight), id(head.weight)}
    found = program_facts.orphans(seen, reached)
    assert found is not None and found["num_elements"] == stem.weight.numel()
    both = program_facts.orphans(seen)
    assert both is not None and both["num_tensors"] == 2, "nobody saw where the backward passes lead"
    encoder.requires_grad_(False)
    frozen = program_facts.orphans(seen)
    assert frozen is not None and frozen["num_tensors"] == 1


def compiled() -> dict[str, Any]:
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    return program_facts.compiled()


def test_memory_is_what_the_kernel_says_of_this_process() -> None:
    found = program_facts.memory()
    assert set(found) - {"mapped"} == {"rss_bytes", "peak_rss_bytes", "swap_used", "memory_limit"} <= set(_MEMORY)
    assert set(_MEMORY) <= set(Facts.__struct_fields__)
    assert found["rss_bytes"] == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    assert found["peak_rss_bytes"] >= 0.99 * found["rss_bytes"] and found["swap_used"] >= 0


@pytest.mark.parametrize(
    ("told", "own"),
    [
        ("RssAnon:\t   3 kB\nRssShmem:\t1 kB\nRssFile:\t9 kB\n", 4096),
        ("RssAnon:\t   3 kB\n", None),
        ("RssAnon:\n", None),
    ],
)
def test_own_memory_is_told_in_full_or_not_at_all(told: str, own: int | None, tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    assert processes.own_bytes(str(tmp_path)) is None
    (tmp_path / "self" / "status").write_text("Name:\tpython\n" + told)
    assert processes.own_bytes(str(tmp_path)) == own


def test_files_that_are_mapped_are_not_memory_that_is_held(tmp_path: Path) -> None:
    (file := tmp_path / "rows").write_bytes(b"1" * (64 << 20))
    before, own = program_facts.memory(), processes.own_bytes()
    assert before["mapped"] and own is not None
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as rows:
        sum(rows[at] for at in range(0, len(rows), 4096))
        plain, known = program_facts.memory(), program_facts.memory(before)
        assert processes.own_bytes() == pytest.approx(own, abs=16 << 20)
    assert plain["rss_bytes"] - before["rss_bytes"] > 48 << 20
    assert known["rss_bytes"] == pytest.approx(before["rss_bytes"], abs=16 << 20)
    assert known["peak_rss_bytes"] <= plain["peak_rss_bytes"] - (48 << 20)
    assert known["runtime_bytes"] == before["rss_bytes"]
