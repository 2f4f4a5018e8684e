"""The stage plays what real programs record: each maker runs, in a process of its own, and says why where it cannot."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from gobrrr.rehearsal import autocast, callables, stage
from gobrrr.rehearsal.perform import perform
from gobrrr.rehearsal.scenes import TORCH_DTYPES
from gobrrr.rehearsal.script import Part, Scene, Script
from tests.ledger.ops.recorder import Recorder

SEEN = (
    lambda x: torch.nn.functional.gelu(torch.nn.functional.linear(x, torch.ones(16, 8), torch.ones(16))),
    lambda x: torch.softmax(x @ x.T, -1) * 2.0,
    lambda x: torch.nn.functional.layer_norm(x, (8,), torch.ones(8), torch.ones(8)),
    lambda x: torch.nn.functional.conv2d(x.view(1, 8, 4, 4), torch.ones(4, 8, 3, 3), torch.ones(4), padding=1).relu(),
    lambda x: torch.bmm(x.view(2, 8, 8), x.view(2, 8, 8)).sum(),
    lambda x: torch.log_softmax(x, -1).mean(0),
    lambda x: torch.mm(x.detach(), x.detach().T, out=torch.empty(16, 64)[:, :16]) + x.sum(),
)


def sides(run: Any) -> list[dict[str, Any]]:
    """The ops of a forward and backward, as they would be recorded."""
    found: list[dict[str, Any]] = []

    def seen(call: Any, *rest: Any) -> None:
        if call.name in callables.KNOWN and "TensorList" not in call.dtypes:
            fields = {"shapes": call.shapes, "strides": call.strides, "dtypes": call.dtypes, "concrete": call.concrete}
            found.append({"make": "op", "name": call.name} | {k: json.loads(json.dumps(v)) for k, v in fields.items()})

    x = torch.rand(16, 8, requires_grad=True)
    with Recorder(seen):
        result = run(x)
        result.sum().backward()
    return found


@pytest.mark.parametrize("run", SEEN)
def test_what_was_recorded_can_be_played(run: Any) -> None:
    played = sides(run)
    assert played
    for side in played:
        callables.make(torch, side, "cpu")()


def test_only_known_ops_are_called() -> None:
    side = {"make": "op", "name": "aten::from_file", "shapes": [], "dtypes": [], "strides": [], "concrete": []}
    with pytest.raises(ValueError, match="no op that is played"):
        callables.make(torch, side, "cpu")


WHOLES: list[dict[str, Any]] = [
    {"make": "cast", "elements": 64, "source": "float", "target": "c10::BFloat16"},
    {"make": "optimizer", "kind": "AdamW", "tensors": [[[8, 8], 2], [[8], 1]], "options": {"lr": 0.1}, "how": {}},
    {"make": "optimizer", "kind": "SGD", "tensors": [[[8, 8], 2]], "options": {"lr": 0.1, "momentum": 0.9},
     "how": {"fused": True}},
    *({"make": "attention", "dims": [2, 2, 32, 32, 8], "torch_dtype": "float32", "backward": True, "mask": True,
       "fused": fused} for fused in (False, True)),
    *({"make": "loss", "dims": [16, 8, 5000], "torch_dtype": "float32", "backward": True, "chunked": chunked}
      for chunked in (False, True)),
    {"make": "fresh", "dims": [64, 32, 16], "dtype": "c10::BFloat16", "torch_dtype": "bfloat16"},
    *({"make": "mask", "elements": 64, "keep": 0.9, "dtype": "c10::BFloat16", "torch_dtype": "bfloat16",
       "packed": packed}
      for packed in (False, True)),
]  # fmt: skip


def test_what_is_packed_is_what_the_remedy_would_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr("gobrrr.remedies.layers.mask_bits.fill", lambda noise, _: calls.append(noise.numel()))
    for side in WHOLES[-2:]:
        callables.make(torch, side, "cpu")()
        assert len(calls) == int(side["packed"])


def test_a_fresh_product_is_of_another_shape_each_time() -> None:
    run = callables.make(torch, WHOLES[7], "cpu")
    assert [tuple(run().shape) for _ in range(3)] == [(64, 16), (65, 16), (66, 16)]  # type: ignore[attr-defined]


def test_masks_are_drawn_at_the_chance_that_was_recorded() -> None:
    for packed in (False, True):
        side = {"make": "mask", "elements": 2**16, "keep": 0.25, "torch_dtype": "float32", "packed": packed}
        drawn: Any = callables.make(torch, side, "cpu")()
        assert drawn.mean().item() == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("side", WHOLES)
def test_wholes_run(side: dict[str, Any]) -> None:
    callables.make(torch, side, "cpu")()


def test_both_attentions_compute_the_same() -> None:
    assert set(TORCH_DTYPES.values()) == {"float32", "float64", "bfloat16", "float16"}
    found = []
    for side in WHOLES[3:5]:
        torch.manual_seed(0)
        found.append(callables.make(torch, {**side, "backward": False}, "cpu")())
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(("dropout", "kind"), [(0.1, "float"), (0.0, ""), (None, "c10::BFloat16")])
def test_an_attention_whose_weights_are_dropped_out_multiplies_in_float_under_autocast(
    dropout: float | None, kind: str, tmp_path: Path
) -> None:
    """What autocast.MATH says of torch: a kernel has no products of its own, an attention by hand lowers them."""
    q = torch.rand(1, 2, 16, 8, requires_grad=True)
    with torch.profiler.profile(record_shapes=True) as seen:
        with torch.autocast("cpu"):
            if dropout is None:
                found = (q @ q.transpose(-2, -1)).softmax(-1) @ q
            else:
                found = torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=dropout)
        assert found.dtype == torch.bfloat16
        found.sum().backward()
    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    products = [each["args"]["Input type"] for each in events if each.get("name") == "aten::bmm"]
    assert {name for names in products for name in names[:2]} == ({kind} if kind else set())
    assert any(each.get("name") == autocast.MATH for each in events) == (kind == "float")


def test_an_optimizer_that_is_not_torchs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not one of torch\.optim"):
        callables.make(torch, {"make": "optimizer", "kind": "__class__", "tensors": []}, "cpu")


def script(*scenes: Scene, **changes: Any) -> Script:
    fields: dict[str, Any] = {"torch": str(torch.__version__), "device": "cpu", "threads": 1, "precision": "highest"}
    return Script(**{**fields, "scenes": scenes, "seconds": 60.0, **changes})


def test_a_script_is_played_in_a_process_of_its_own() -> None:
    good = Scene("fused_optimizer", (Part(WHOLES[1], WHOLES[2], 1.0, 1e6), Part(None, WHOLES[0])), seconds=1.0)
    bad = Scene("bf16_autocast", (Part({"make": "op", "name": "aten::exec", "shapes": [], "dtypes": []}, None),))
    found = perform(script(good, bad), sys.executable)
    assert len(found["fused_optimizer"].rounds) >= stage.MIN_ROUNDS
    today, then = found["fused_optimizer"].rounds[0]
    assert today[0] > 0 and then[0] == 0 and then[1] > 0
    assert not found["bf16_autocast"].rounds and "no op that is played" in found["bf16_autocast"].why


@pytest.mark.parametrize(("today", "then"), [WHOLES[i : i + 2] for i in (3, 5, 8)])
def test_each_whole_has_room_on_the_stage(today: dict[str, Any], then: dict[str, Any]) -> None:
    sides = [{"dtype": "float", **side} for side in (today, then)]
    found = perform(script(Scene("x", (Part(*sides, 1.0, 1e6),), seconds=1.0)), sys.executable)
    assert len(found["x"].rounds) >= stage.MIN_ROUNDS, found["x"].why


def test_another_torch_plays_nothing() -> None:
    scene = Scene("fused_optimizer", (Part(WHOLES[1], WHOLES[2], 1.0, 1e6),))
    found = perform(script(scene, torch="2.6.0"), sys.executable)["fused_optimizer"]
    assert not found.rounds and "the program's was 2.6.0" in found.why


def test_an_interpreter_that_does_not_start_plays_nothing() -> None:
    scene = Scene("fused_optimizer", (Part(WHOLES[1], WHOLES[2], 1.0, 1e6),))
    assert "does not start" in perform(script(scene), "no-such-python")["fused_optimizer"].why


def test_rows_that_lie_far_apart_take_no_more_than_themselves() -> None:
    """6 GB from the first to the last, as a sparse file that is mapped; the strides are in the recording."""
    side = {"make": "op", "name": "aten::mm", "shapes": [[256, 2048], [2048, 8]], "dtypes": ["float"] * 2,
            "strides": [[5_859_375, 1], [8, 1]], "concrete": []}  # fmt: skip
    made: list[int] = []
    real = torch.ones

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

        def ones(self, *shape: Any, **how: Any) -> Any:
            result = real(*shape, **how)
            made.append(result.numel())
            return result

    callables.make(Counting(), side, "cpu")()
    assert max(made) == 256 * 2048


def test_what_ended_the_process_is_said(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ncat > /dev/null\nkill -9 $$\n")
    python.chmod(0o755)
    scene = Scene("fused_optimizer", (Part(WHOLES[1], WHOLES[2], 1.0, 1e6),))
    assert "its process was ended" in perform(script(scene), str(python))["fused_optimizer"].why


def test_the_users_sitecustomize_does_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    scene = Scene("fused_optimizer", (Part(None, WHOLES[0]), Part(WHOLES[1], WHOLES[2], 1.0, 1e6)), seconds=0.5)
    assert perform(script(scene), sys.executable)["fused_optimizer"].rounds, "torch is found all the same"
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="a parent's death is told on Linux only")
def test_the_stage_does_not_outlive_who_waits_for_it(tmp_path: Path) -> None:
    """A script without an end: the stage waits for the rest of it, and its standard input stays open."""
    stage = "from gobrrr.rehearsal.stage import main; main()"
    ours, theirs = os.pipe()
    code = (
        f"import os, subprocess, sys; command = [sys.executable, '-c', {stage!r}, str(os.getpid())]; "
        f"print(subprocess.Popen(command, stdin={ours}).pid, flush=True); input()"
    )
    try:
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              pass_fds=[ours]) as parent:  # fmt: skip
            assert parent.stdout is not None
            child = psutil.Process(int(parent.stdout.readline()))
            parent.kill()
        with contextlib.suppress(psutil.NoSuchProcess):
            child.wait(30)
    finally:
        os.close(theirs)
        os.close(ours)
