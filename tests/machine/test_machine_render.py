"""What people read of a machine: the tables, the ratios that matter, the doubts, and the verb that prints them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from gobrrr.cli.main import main
from gobrrr.errors import TorchMissing
from gobrrr.machine.measure import store
from gobrrr.machine.model.machine import Machine, Measured
from gobrrr.report.forms.formats import show
from gobrrr.report.told.machine import figure_text, insights, ratio
from tests.support.machine_samples import DEVICE, figure, machine, products
from tests.support.shown import as_text

HEADING = """\
AMD EPYC Example: 2 logical cores, effective 1.9 (1.9 to 2.0), 24.0 GiB, torch 2.13.0+cpu
avx2, avx512_bf16
Ceilings: attainable, measured here (quartiles)

Matrix products
"""


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of pytest-xdist say a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


class TestText:
    def test_a_quiet_machine(self) -> None:
        said = as_text(machine())
        lines = said.splitlines()
        assert said.startswith(HEADING)
        assert "  fp64                       50.0 GFLOP/s (48.8 to 51.2)       100 GFLOP/s (97.5 to 102)" in said
        assert "Doubts" not in said
        assert all(line == line.rstrip() and len(line) <= 100 for line in lines)

    def test_every_ceiling_has_its_spread(self) -> None:
        said = as_text(machine(device=DEVICE))
        for row in ("fp32, precision medium", "1.00 MiB", "dispatch of one small op", "minor fault", "launch", "tf32"):
            (line,) = [line for line in said.splitlines() if line.strip().startswith(row)]
            assert " to " in line, line

    def test_a_peak_stands_beside_the_ceiling_and_is_called_data_sheet(self) -> None:
        said = as_text(machine(device=DEVICE))
        assert "data sheet: NVIDIA H100 Tensor Core GPU data sheet" in said.replace("\n", " ")
        (line,) = [line for line in said.splitlines() if line.strip().startswith("tf32")]
        assert line.endswith("495 TFLOP/s")
        assert "bf16 products reach 70.7 % of 989 TFLOP/s (data sheet, not measured" in " ".join(said.split())

    def test_doubts_come_last_with_what_settles_them(self) -> None:
        said = as_text(machine(doubts=("The dispatch of a small op varied by 40.0 % (1 us to 2 us).",)))
        assert "Doubts\n -  The dispatch of a small op varied by 40.0 %" in said
        assert "`gobrrr machine --refresh` on an idle machine" in " ".join(said.split())

    def test_one_thread_has_one_column(self) -> None:
        one = machine().matmul["1"]
        said = as_text(machine(threads=1, matmul={"1": one, "all": one}))
        assert "2 threads" not in said
        assert "fp64 50.0 GFLOP/s (48.8 to 51.2) fp32 102 GFLOP/s" in " ".join(said.split())

    def test_a_terminal_gets_colour_and_a_pipe_does_not(self) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        terminal, pipe = Terminal(), io.StringIO()
        show(machine(), terminal)
        show(machine(), pipe)
        assert "\x1b[1m" in terminal.getvalue()
        assert "\x1b" not in pipe.getvalue()
        assert pipe.getvalue() == as_text(machine())

    @pytest.mark.parametrize(
        ("measured", "said"),
        [
            (figure(211e9, "FLOP/s"), "211 GFLOP/s (206 to 216)"),
            (Measured(1000, 900, 1100, 8, "ns"), "1.00 us (900 ns to 1.10 us)"),
            (Measured(0, 0, 0, 0, "ns"), "-"),
            (None, "-"),
        ],
    )
    def test_figures(self, measured: Measured | None, said: str) -> None:
        assert figure_text(measured) == said


class TestInsights:
    def said(self, **changes: object) -> str:
        return "\n".join(insights(machine(**changes)))

    def test_medium_precision_at_the_same_accuracy(self) -> None:
        line = 'set_float32_matmul_precision("medium"): 2.1x as fast as fp32, the same accuracy'
        assert f"fp32 under {line} (relative error 5.7e-07 against 2.5e-07)." in self.said()

    def test_medium_precision_that_is_bf16_in_truth(self) -> None:
        assert "2.1x as fast as fp32, at a lower accuracy" in self.said(fp32_medium_error=2.9e-3)
        assert not machine(fp32_medium_error=2.9e-3).medium_is_fp32

    def test_fp16_without_hardware(self) -> None:
        assert "fp16: 340x slower than fp32." in self.said()

    def test_a_ratio_within_the_spread_is_not_claimed(self) -> None:
        noisy = {"fp32": figure(100e9, "FLOP/s", 0.6), "bf16": figure(130e9, "FLOP/s", 0.6)}
        assert "bf16:" not in self.said(matmul={"1": noisy, "all": noisy})
        quiet = products(fp32=100.0, bf16=130.0)
        assert "bf16: 1.3x as fast as fp32." in self.said(matmul={"1": quiet, "all": quiet})

    def test_cores_that_are_not_there(self) -> None:
        assert "2 cores are there, but parallel work gets 1.2" in self.said(effective_cores=figure(1.2, "cores"))
        assert "cores are there" not in self.said()

    def test_memory_and_pages(self) -> None:
        said = self.said()
        assert "Below 5 (fp32) or 22 (bf16) FLOP per byte of main memory" in said
        assert "A fresh 4 KiB page costs 500 ns, copying one that is there 102 ns" in said
        assert "allocated anew each time pay 5.9x" in said

    def test_what_was_not_measured_is_not_mentioned(self) -> None:
        nothing = Measured(0, 0, 0, 0, "ns")
        bare = {"matmul": {}, "copy": (), "dispatch": nothing, "fresh_page": nothing, "effective_cores": nothing}
        assert self.said(**bare) == ""
        assert ratio(machine(matmul={}), "bf16") is None


class TestVerb:
    @pytest.fixture(autouse=True)
    def kept(self, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
        asked: list[dict[str, object]] = []

        def load(**options: object) -> Machine:
            asked.append(options)
            notify = options["notify"]
            assert callable(notify)
            notify("measuring ...")
            return machine()

        monkeypatch.setattr(store, "load_or_measure", load)
        return asked

    def test_result_on_stdout_progress_on_stderr(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["machine"]) == 0
        out, err = capsys.readouterr()
        assert out == as_text(machine())
        assert err == "gobrrr: measuring ...\n"

    def test_json_is_the_machine(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["machine", "--json"]) == 0
        out = capsys.readouterr().out
        assert store.decode(out.encode()) == machine()
        assert json.loads(out)["schema"] == "gobrrr.machine/1"

    def test_json_goes_into_a_file_where_one_is_named(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["machine", "--json", str(tmp_path / "here.json")]) == 0
        assert store.decode((tmp_path / "here.json").read_bytes()) == machine() and not capsys.readouterr().out

    def test_options_reach_the_store(self, kept: list[dict[str, object]]) -> None:
        main(["machine", "--refresh", "--python", "/some/python"])
        assert (kept[0]["refresh"], kept[0]["interpreter"]) == (True, "/some/python")

    def test_no_torch_is_two_lines(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        def missing(**_: object) -> Machine:
            raise TorchMissing("torch is not installed in python3", "python3 -m pip install torch")

        monkeypatch.setattr(store, "load_or_measure", missing)
        assert main(["machine"]) == 2
        assert capsys.readouterr().err.splitlines() == [
            "gobrrr: error: torch is not installed in python3",
            "  hint: python3 -m pip install torch",
        ]
