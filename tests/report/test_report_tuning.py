"""The report of a tuning, on receipts made by hand."""

from __future__ import annotations

import io

import msgspec
import pytest

from gobrrr.report.forms import formats
from gobrrr.report.told import speedup_text, tuning
from gobrrr.rules.model.finding import Saving
from gobrrr.trial.receipt.receipt import Compiled, Guarded, Receipt, Speedup, StartUp, TrialResult
from tests.support.shown import as_comment, as_text

MS = 1e6
GREEN = Guarded("equivalent")


def trial(name: str, verdict: str = "faster", median: float = 1.25, **fields) -> TrialResult:
    fields = {"guard": GREEN, "speedup": Speedup(median, 0.96 * median, 1.04 * median), "seconds": 60.0} | fields
    return TrialResult(remedies=(name,), verdict=verdict, **fields)


def receipt(*trials: TrialResult, kept: tuple[str, ...] = (), **fields) -> Receipt:
    fields = {"step_ns": 200 * MS, "guard": GREEN} | fields
    return Receipt(trials=trials, kept=kept, **fields)


TUNED = receipt(
    trial("malloc_thresholds", median=1.25),
    trial("fused_optimizer", median=2.0),
    trial("bf16_autocast", "slower", 0.5, predicted=Saving(0.0, 10 * MS, 40 * MS), realised_ns=-200 * MS),
    trial("compile", "failed", speedup=None, reason="the program ended with 1: no g++"),
    trial("channels_last", "inconclusive", 1.02, blocks_needed=80, reason="4 starts of each arm would settle it"),
    trial("sdpa", "faster", 1.4, guard=Guarded("wrong", ("gradient norm 2.0 times",), "block.0")),
    TrialResult(
        remedies=("a", "b"),
        purpose="final",
        verdict="faster",
        peak_bytes=(3 << 30, 2 << 30),
        start_up=StartUp(2.0, 400.0, 900),
        guard=GREEN,
    ),
    kept=("malloc_thresholds", "fused_optimizer"),
    speedup=Speedup(2.4, 2.3, 2.5),
)


def flat(text: str) -> str:
    """Without the layout."""
    return " ".join(text.split())


def test_the_gain_comes_first_with_its_interval_and_the_guard() -> None:
    first = as_text(TUNED).splitlines()[0]
    assert first == "2.40 times as fast (95 % interval 2.30 to 2.50), 200 ms to 83.3 ms per step; numbers match."


@pytest.mark.parametrize("complete", [True, False])
def test_a_receipts_words_reach_no_terminal_as_they_are(complete: bool) -> None:
    """A receipt may come from anywhere; what its verdicts hold was printed raw."""
    odd = "better\x1b[2J\x1b]0;x\x07"
    trials = (trial("a", odd), trial("b", guard=Guarded(odd)), trial("c", odd, guard=Guarded("wrong")))
    for guard in (Guarded(odd), GREEN):
        found = receipt(*trials, kept=("b",), guard=guard, complete=complete, speedup=Speedup(2.4, 2.3, 2.5))
        assert not set(as_text(found)) & {"\x1b", "\x07"}


def test_what_was_measured_beside_others_is_told_so() -> None:
    """Seven other programs on four cores: 4.89 s for a step of 144 ms, and "24.72 times as fast" by short waits."""
    said = flat(as_text(msgspec.structs.replace(TUNED, diagnosed_step_ns=100 * MS)))
    assert "busy machine: as written a step took 200 ms here and 100 ms in the diagnosis" in said
    for quiet in (None, 200 * MS, 150 * MS):
        assert "crowded" not in as_text(msgspec.structs.replace(TUNED, diagnosed_step_ns=quiet))


def test_each_that_was_kept_and_all_together_are_drawn_beside_the_program_as_it_is() -> None:
    lines = [line for line in as_text(TUNED).splitlines() if "█" in line]
    assert [name in line for name, line in zip(("200 ms", "160 ms", "100 ms", "83.3 ms"), lines, strict=True)] == [
        True
    ] * 4
    assert lines[0].count("█") > lines[1].count("█") > lines[2].count("█") > lines[3].count("█") > 0
    assert "kept, together" in lines[3] and "2.40x (2.30 to 2.50), numbers match" in lines[3]


def test_a_step_is_of_the_program_as_written_whatever_a_race_ran_against() -> None:
    raced = trial("fused_optimizer", median=2.0, baseline_step_ns=300 * MS)
    text = as_text(receipt(raced, kept=("fused_optimizer",), speedup=Speedup(2.1, 2.0, 2.2)))
    assert "100 ms" in text and "150 ms" not in text


def test_a_single_remedy_does_not_stand_twice_under_its_name() -> None:
    found = receipt(trial("packed_masks", median=2.0), kept=("packed_masks",), speedup=Speedup(2.1, 2.0, 2.2))
    assert [row.name for row in tuning.levels(found)] == ["as written", "packed_masks", "in fresh processes"]
    unraced = msgspec.structs.replace(found, trials=())
    assert [row.name for row in tuning.levels(unraced)] == ["as written", "packed_masks"]
    two = msgspec.structs.replace(found, kept=("packed_masks", "fused_optimizer"))
    assert tuning.levels(two)[-1].name == "kept, together", "of one of them the race showed nothing"


def test_what_torch_compile_made_is_told_beside_what_it_brought() -> None:
    made = Compiled(3, 2, 4)
    won = trial("compile", median=1.25, compiled=made, purpose="final")
    lost = trial("compile_memory_budget", "slower", 0.9, compiled=made)
    found = receipt(won, lost, kept=("compile",), speedup=Speedup(1.25, 1.2, 1.3))
    text = flat(as_text(found))
    assert text.count("3 graphs, 2 graph breaks, recompiled 4 times while it was measured") == 2


def test_every_loser_says_why() -> None:
    text = flat(as_text(TUNED))
    assert "no g++" in text and "4 starts of each arm would settle it" in text and "blocks" not in text
    assert "predicted 0 ns to 40.0 ms, realised -200 ms" in text
    assert "sdpa wrong its numbers from block.0 on: gradient norm 2.0 times" in text


def test_no_speed_up_stands_beside_a_guard_that_is_not_green() -> None:
    assert "1.40" not in as_text(TUNED)
    doubtful = msgspec.structs.replace(TUNED, guard=Guarded("unverified"))
    first = as_text(doubtful).splitlines()[0]
    assert first.startswith("Not proven") and "unverified" in first and "2.40" not in as_text(doubtful)


def test_costs_at_the_start_and_memory() -> None:
    text = flat(as_text(TUNED))
    assert "costs 2.0 s at the start and pays after 400 steps; this program makes 900" in text
    assert "peak 3.00 GiB before, 2.00 GiB after" in text
    short = receipt(trial("compile", start_up=StartUp(60.0, 6000.0, 900), purpose="final"), kept=("compile",))
    assert "pays after 6,000 steps; this program makes 900: it does not pay here" in flat(as_text(short))


def test_nothing_kept_and_interrupted_are_said_plainly() -> None:
    assert "Nothing kept: of 1 remedy tried" in as_text(receipt(trial("compile", "slower", 0.9)))
    cut = msgspec.structs.replace(TUNED, complete=False)
    assert as_text(cut).startswith("Interrupted after 7 trials") and "--resume" in as_text(cut)


def test_an_open_trial_has_no_realised_saving() -> None:
    fields = {"predicted": Saving(0.0, 10 * MS, 40 * MS), "realised_ns": 5 * MS}
    assert "realised" not in as_text(receipt(trial("compile", "inconclusive", 1.1, **fields)))
    assert "realised" in as_text(receipt(trial("compile", "slower", 0.9, **fields)))


def test_a_win_in_the_race_alone_shows_no_speed_up() -> None:
    text = as_text(receipt(trial("compile", median=1.77, guard=Guarded())))
    assert "1.77" not in text and "not confirmed" in flat(text)


def test_nothing_measured_open_and_nothing_to_try_are_three_things() -> None:
    dead = trial("compile", "failed", speedup=None, reason="no g++")
    assert as_text(receipt(dead, measured=False)).startswith("Nothing was measured,")
    late = trial("compile", "inconclusive", purpose="final", reason="2 more starts would settle it")
    assert "Not confirmed: compile may be faster; 2 more starts" in flat(as_text(receipt(late, likely=("compile",))))
    assert "no finding calls for a remedy" in as_text(receipt())


def test_what_the_race_promised_and_fresh_processes_did_not_show_is_told() -> None:
    raced = trial("one_worker", "inconclusive", 1.05)
    slower = trial("one_worker", "inconclusive", 0.85, purpose="final", reason="time for 2 of the 3 starts")
    text = flat(as_text(receipt(raced, slower)))
    assert text.startswith("Nothing kept: one_worker looked faster in the race and did not in fresh processes: 0.85x (")
    assert "in fresh processes 0.85x (" in text.partition("tried")[2] and "1.05x" in text.partition("tried")[2]


def test_a_stack_that_the_guard_refused_stands_once_under_tried() -> None:
    pair = msgspec.structs.replace(trial("trim_padding", median=3.0), remedies=("trim_padding", "bucketing"))
    alone = trial("malloc_thresholds", median=1.3)
    refused = msgspec.structs.replace(pair, purpose="guard", guard=Guarded("wrong", first_module="pool"))
    shown = tuning.raced(receipt(pair, alone, refused), kept=False)
    assert shown == [alone, refused], "what no guard has seen still stands"
    on_top = msgspec.structs.replace(pair, remedies=("bucketing",), onto=("trim_padding",))
    assert tuning.raced(receipt(on_top, refused), kept=False) == [refused]
    assert tuning.raced(receipt(pair, kept=("trim_padding", "bucketing")), kept=True) == [pair]


def test_a_second_look_stands_for_the_first() -> None:
    first, second = trial("malloc", "inconclusive", 1.1), trial("malloc", "inconclusive", 1.16)
    on_top = msgspec.structs.replace(first, onto=("fused",))
    assert tuning.raced(receipt(first, on_top, second), kept=False) == [on_top, second]


def test_a_second_look_that_had_no_time_does_not() -> None:
    first = trial("x", "inconclusive", 1.35, reason="after 12 pairs")
    none = trial("x", "inconclusive", speedup=None, reason="after 0 pairs, when the time for the race was over")
    said = flat(as_text(receipt(first, none)))
    assert "12 pairs" in said and "0 pairs" not in said
    assert "0 pairs" in flat(as_text(receipt(none)))


def test_another_setting_of_what_was_kept_still_stands_under_tried() -> None:
    two = trial("loader_workers", median=1.2, options={"loader_workers": {"workers": 2}})
    final = trial("loader_workers", purpose="final", options={})
    found = receipt(two, final, kept=("loader_workers",), options={"loader_workers": {"workers": 4}})
    assert tuning.raced(found, kept=False) == [two]


def test_pay_back_counts_what_the_tuning_took() -> None:
    """360 s, whatever its trials took; 1 - 1/2.4 of the time comes back: 360 s / 0.583 = 0.17 h; of 2.00 per hour
    1.17."""
    out = io.StringIO()
    command = "gobrrr run --recipe recipe.toml train.py"
    formats.show(TUNED, out, formats.View(next_command=command, seconds=360.0, price_per_hour=2.0))
    text = flat(out.getvalue())
    assert "tuning took 6.0 min" in text
    assert "pays for itself after 0.2 h of training" in text and "1.17 of every 2.00 per hour" in text
    assert "gobrrr run --recipe recipe.toml train.py" in text


@pytest.mark.parametrize("width", [40, 60, 100])
def test_it_fits_any_width_and_alphabet(width: int) -> None:
    text = as_text(TUNED, width=width, ascii_only=True)
    assert text.isascii() and max(map(len, text.splitlines())) <= width


def test_names_from_a_receipt_are_harmless() -> None:
    hostile = receipt(trial("\x1b[2Jname", "failed", speedup=None, reason="[bold]\x1b[0m"))
    assert "\x1b" not in as_text(hostile)


def test_an_interval_that_says_nothing_is_no_figure() -> None:
    """0.27x (0.00 to 152.90) stood in a receipt, of three blocks beside other programs."""
    assert speedup_text.times(Speedup(0.27, 0.002, 152.9)) == "blocks that scatter too much for a figure"
    assert speedup_text.times(Speedup(1.2, 0.4, 3.9)) == "1.20x (0.40 to 3.90)"
    assert speedup_text.times(Speedup(20.0, 4.0, 90.0)) == "20.00x (4.00 to 90.00)", "it is at least so much"


def test_a_comment_tells_the_settings_of_one_remedy_apart() -> None:
    tried = [trial("loader_workers", "slower", 0.9, options={"loader_workers": {"workers": n}}) for n in (2, 4)]
    rows = [line for line in as_comment(receipt(*tried)).splitlines() if line.startswith("| loader")]
    assert ["workers=2" in rows[0], "workers=4" in rows[1], len(rows)] == [True, True, 2]


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_of_a_tuning_for_memory_without_its_figure_no_gain_is_told(form: str) -> None:
    """It ended in a traceback: the time's speed-up was taken for the gain."""
    final = trial("checkpoint", "smaller", objective="memory", purpose="final")
    found = receipt(final, kept=("checkpoint",), objective="memory", speedup=Speedup(0.9, 0.8, 0.95))
    told = formats.render(found, form, formats.View()).decode()
    assert "Not proven: what was kept has no figure in this receipt." in flat(told) and "0.90x" not in told


@pytest.mark.parametrize("field", ["median", "low", "high"])
@pytest.mark.parametrize("objective", ["time", "memory"])
def test_what_is_no_ratio_is_not_told_as_one(field: str, objective: str) -> None:
    """Of a stranger's receipt: 1 over it would be a step."""
    none = msgspec.structs.replace(Speedup(1.5, 1.4, 1.6), **{field: 0.0})
    told = receipt(trial("fused_optimizer", "faster", speedup=none), kept=("fused_optimizer",), speedup=none)
    if objective == "memory":
        told = msgspec.structs.replace(told, objective="memory", memory=none)
    assert "no figure in this receipt" in as_text(told) and "1.50" not in as_text(told)
    assert speedup_text.figures(msgspec.structs.replace(told, memory=Speedup(1.5, 1.4, 1.6))).endswith("not known")
