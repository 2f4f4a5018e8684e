"""BRR302 to BRR306: code inside the step, charged to its line, on ledgers made by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Account, StepStats
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.recording.model.facts import Facts, OptimizerFacts, Span
from tests.rules.test_rules_overhead import recurrence
from tests.support.handmade import ALL_SIGNALS, LINE, MS, OTHER_LINE, Case, machine, op
from tests.support.rule_lines import LOOP, host, line, lines

NEXT = Span("train.py", 44, "forward")


def metric(ms: float = 30.0, sampled: float | None = None, waits: bool = False, **fields) -> Case:
    parts = () if sampled is None else (line(sampled, LINE, waiting=waits, sklearn__metrics__f1_score=sampled / 2),)
    signals = ALL_SIGNALS if parts else ALL_SIGNALS - {"samples"}
    return Case(signals=signals, extra={"host": (host(ms, LINE),), "lines": parts}, **fields)


def test_python_between_ops_is_told_at_its_line():
    (found,) = metric(30, sampled=28).raised("BRR302")
    assert found.where == (LINE,) and found.severity == "warning"
    assert found.evidence["python_time"].value == 28 * MS, "the sampler is the truth, the profiler slows Python down"
    assert "sklearn.metrics.f1_score" in found.message
    assert found.saving.ceiling_ns == pytest.approx(1.1 * 28 * MS)


@pytest.mark.parametrize(("part", "num_samples", "named"), [(0.5, 10, True), (0.4, 200, False), (0.9, 9, False)])
def test_a_library_function_is_named_where_enough_samples_saw_it_most_of_the_time(part, num_samples, named):
    case = metric(30, sampled=28)
    (seen,) = case.extra["lines"]
    library = (("gymnasium.core.Wrapper.reset", part * seen.ns),)
    case.extra["lines"] = (replace(seen, libraries=library, num_samples=num_samples),)
    assert ("Wrapper.reset" in case.raised("BRR302")[0].message) == named


def test_a_line_that_is_mostly_ops_does_not_promise_them():
    """`model.generate(...)` is a line of much Python, and of the whole model."""
    (little,) = metric(30, sampled=28, ops=(op("add", (99, 99), ms=5, where=(LINE,)),)).raised("BRR302")
    assert little.saving.ceiling_ns == pytest.approx(35 * MS), "both go with the line"
    (model,) = metric(30, sampled=90, ops=(op("mm", (99, 99), ms=60, where=(LINE,)),)).raised("BRR302")
    assert model.saving.ceiling_ns == pytest.approx(1.1 * 30 * MS)


@pytest.mark.parametrize(
    ("library", "waits"), [("multiprocessing.connection._ConnectionBase.send", True), ("gymnasium.core.reset", False)]
)
def test_a_library_that_talks_to_another_process_waits_for_it(library, waits):
    case = Case(ms=100, extra={"host": (host(20, LOOP),)})
    seen = line(22, LOOP)
    case.extra["lines"] = (replace(seen, libraries=((library, 21 * MS),), num_samples=30),)
    (found,) = case.raised("BRR302")
    assert ("Nothing computes here" in found.advice) == waits


def test_a_library_is_named_by_its_own_name_and_its_package():
    """Dotted names of a package's insides are longer than a line of the report."""
    deep = line(28, LINE, transformers__models__whisper__generation__Mixin__generate=20.0)
    case = Case(signals=ALL_SIGNALS, extra={"host": (host(30, LINE),), "lines": (deep,)})
    assert "is Python in Mixin.generate of transformers at this line" in case.raised("BRR302")[0].message
    case.signals = case.signals | {"offline"}
    (told,) = case.raised("BRR302")
    assert "in this function, while no op runs" in told.message, "a trace has a function's first line, not its slow one"


def test_the_profile_alone_will_do():
    assert metric(30).raised("BRR302")[0].evidence["python_time"].value == 30 * MS


def test_neighbouring_lines_of_one_function_are_one_finding():
    crowd = tuple(host(4, at) for at in (LINE, NEXT, Span("train.py", 46, "forward"), Span("train.py", 60, "forward")))
    (found,) = Case(signals=ALL_SIGNALS - {"samples"}, extra={"host": crowd}).raised("BRR302")
    assert found.evidence["lines"].value == 3 and found.evidence["python_time"].value == 12 * MS


@pytest.mark.parametrize("there", [machine(), UNKNOWN])
def test_python_that_issues_ops_is_dispatch_and_not_the_users_work(there):
    """Whether or not it is known how long that takes there: a trace came with its machine's figures, and without."""
    ops = (op("add", (99, 99), ms=20, calls=1000),)
    assert not metric(8, ops=ops, machine=there).raised("BRR302")
    assert metric(12, ops=ops, machine=there).raised("BRR302")


def test_below_the_threshold_or_asleep_or_in_the_loader_is_silent():
    assert not metric(4.9).raised("BRR302")
    assert not metric(30, sampled=28, waits=True).raised("BRR302"), "the main thread sleeps: no Python runs"
    assert metric(30, sampled=28, waits=True, facts=Facts(other_load=1.5)).raised("BRR302"), "it waits its turn"
    assert not Case(extra={"host": (host(30, LINE, phase="data"), host(30, LINE, phase="optimizer"))}).raised("BRR302")
    assert not Case().raised("BRR302")


def test_a_trainers_line_is_not_python_for_the_backward_below_it():
    """trainer.train() is the line of forward, backward and update alike: the engine's part of it is the engine's."""
    engine = host(20, OTHER_LINE, phase="backward")
    backward = line(30, OTHER_LINE, phase="backward", torch__autograd__graph___engine_run_backward=29.0)
    forward = line(60, OTHER_LINE, phase="forward", transformers__trainer__Trainer__step=60.0)
    assert not Case(extra={"host": (engine,), "lines": (forward, backward)}).raised("BRR302")


def test_the_backward_engine_is_not_the_users_line():
    engine = host(20, OTHER_LINE, phase="backward")
    sampled = line(60, OTHER_LINE, phase="backward", torch__autograd__graph___engine_run_backward=59.0)
    assert not Case(extra={"host": (engine,), "lines": (sampled,)}).raised("BRR302")
    own = line(60, OTHER_LINE, phase="backward", numpy__linalg__svd=59.0)
    assert Case(extra={"host": (engine,), "lines": (own,)}).raised("BRR302"), "a Function.backward of the user's"


def test_lines_that_a_more_specific_rule_has_are_left_to_it():
    copied = line(40, LINE, copy__deepcopy=39.0)
    case = Case(extra={"host": (host(40, LINE),), "lines": (copied,)})
    assert not case.raised("BRR302") and case.raised("BRR303")
    loop = recurrence(extra={"host": (host(5, LINE, phase="forward"),)})
    assert not loop.raised("BRR302") and loop.raised("BRR301")


def test_deep_copies_cost_what_was_sampled():
    (found,) = lines(line(25, LOOP, copy__deepcopy=24.0, copy___deepcopy_dict=20.0)).raised("BRR303")
    assert found.where == (LOOP,) and found.evidence["function"].value == "copy.deepcopy"
    assert found.saving.expected_ns == pytest.approx(0.95 * 24 * MS)
    assert found.saving.ceiling_ns == pytest.approx(1.1 * 24 * MS)


def test_clones_of_a_state_dict_are_priced_by_the_clones():
    state = line(20, LOOP, torch__nn__modules__module__Module__state_dict=1.0)
    clones = op("copy_", (1000, 1000), ms=18, where=(LOOP,))
    (found,) = lines(state, ops=(clones,)).raised("BRR303")
    assert found.saving.expected_ns == pytest.approx(0.95 * 18 * MS)
    assert not lines(state).raised("BRR303"), "a state_dict alone costs nothing worth telling"


@pytest.mark.parametrize(
    "function",
    [
        "torch.serialization.save", "json.dumps", "logging.Logger.info", "matplotlib.figure.Figure.savefig",
        "torch.utils.tensorboard.writer.SummaryWriter.add_histogram", "numpy.lib._npyio_impl.save", "wandb.sdk.run.log",
        "pandas.core.generic.NDFrame.to_csv", "tqdm.std.tqdm.set_postfix",
    ],
)  # fmt: skip
def test_writing_every_step_is_told_whoever_writes(function):
    (found,) = lines(line(20, LOOP, **{function.replace(".", "__"): 19.0})).raised("BRR304")
    assert function in found.message and found.where == (LOOP,) and found.severity == "warning"


@pytest.mark.parametrize(("usual", "rare"), [(0.2, True), (0.4, False), (None, False)])
def test_what_only_long_steps_write_is_of_the_mean_step(usual, rare):
    """A checkpoint in every tenth step, scaled to the median one of 100 ms: of the mean one, 150 ms, it has 30."""
    saved = replace(line(20, LOOP, torch__serialization__save=20.0), usual_share=usual)
    case = lines(saved, step=StepStats(count=100, plain_count=50, mean_ns=150 * MS))
    (found,) = case.raised("BRR304")
    ms = 30 if rare else 20
    assert found.rare == rare and found.evidence["time"].value == ms * MS and f"{ms}.0 ms (20.0 %)" in found.message
    assert found.message.endswith("on average") == rare and found.saving.expected_ns == pytest.approx(0.95 * ms * MS)
    assert found.evidence["line"].value == ms * MS


@pytest.mark.parametrize(
    ("code", "there"),
    [
        ("BRR303", line(20, LOOP, copy__deepcopy=20.0)),
        ("BRR304", replace(line(20, LOOP), held=0.0, writing=20 * MS)),
        ("BRR305", line(20, LOOP, torch___tensor_str___str=20.0)),
    ],
)
def test_whatever_only_long_steps_do_is_of_the_mean_step(code, there):
    case = lines(replace(there, usual_share=0.0), step=StepStats(count=100, plain_count=50, mean_ns=150 * MS))
    (found,) = case.raised(code)
    assert found.rare and "30.0 ms (20.0 %) per step, on average" in found.message


def test_lines_of_every_step_are_not_rare_though_steps_get_longer():
    """The usual step has a quarter of the mean one, and a quarter of each line."""
    saved = replace(line(60, LOOP, torch__serialization__save=60.0), usual_share=0.25)
    rest = replace(line(40), usual_share=0.25)
    (found,) = lines(saved, rest, step=StepStats(count=100, plain_count=50, mean_ns=400 * MS)).raised("BRR304")
    assert not found.rare and found.evidence["time"].value == 60 * MS


@pytest.mark.parametrize(("usual", "rare"), [((0.0, 1.0), True), ((1.0, 0.0), False)])
def test_lines_that_only_their_sum_makes_worth_telling_are_what_most_of_it_is(usual, rare):
    """4.4 ms, of which 2.4 are in long steps or in every one; the longest line alone does not say it."""
    parts = [
        replace(line(ms, Span("train.py", at, "main"), torch__serialization__save=ms), usual_share=usual[at > 70])
        for ms, at in ((1.2, 60), (1.2, 65), (2.0, 75))
    ]
    (found,) = lines(*parts, step=StepStats(count=100, plain_count=50, mean_ns=150 * MS)).raised("BRR304")
    assert found.rare == rare and found.where[0].line == 75


def test_reading_batches_through_a_progress_bar_is_not_writing():
    assert not lines(line(50, LOOP, phase="data", tqdm__std__tqdm____iter__=50.0)).raised("BRR304")
    assert not lines(line(50, LOOP, tqdm__std__tqdm____iter__=50.0)).raised("BRR304")


def test_saving_a_state_dict_is_writing_and_not_copying():
    saved = line(20, LOOP, torch__serialization__save=19.0, torch__nn__modules__module__Module__state_dict=1.0)
    assert lines(saved).raised("BRR304") and not lines(saved).raised("BRR303")


def test_a_loop_that_stands_still_waits_for_a_file_or_a_timer():
    idle = host(28, LOOP)
    (found,) = Case(extra={"lines": (line(30, LOOP, waiting=True),), "host": (idle,)}).raised("BRR315")
    assert found.confidence == "inferred" and "the loop waits" in found.message
    forward = {"lines": (line(30, LOOP, waiting=True, phase="forward"),), "host": (idle,)}
    assert not Case(extra=forward).raised("BRR315"), "the model's own business"
    barrier = op("mm", (8, 8), ms=20, where=(LOOP,))
    assert not Case(ops=(barrier,), extra={"lines": (line(30, LOOP, waiting=True),), "host": (idle,)}).raised("BRR315")
    crowded = Case(extra={"lines": (line(30, LOOP, waiting=True),), "host": (idle,)}, facts=Facts(other_load=1.5))
    assert not crowded.raised("BRR315"), "it only waits its turn"


@pytest.mark.parametrize(
    "function", ["torch._tensor_str._str", "torch._tensor.Tensor.__format__", "torch._tensor.__repr__"]
)
def test_tensors_as_text_have_their_own_rule(function):
    case = lines(line(20, LOOP, **{function.replace(".", "__", function.count(".")): 19.0}))
    library = ((function, 19.0 * MS),)
    case.extra["lines"] = tuple(
        type(each)(each.where, each.ns, each.phase, (), library) for each in case.extra["lines"]
    )
    assert case.raised("BRR305")[0].where == (LOOP,)


def test_a_log_line_that_formats_a_tensor_is_told_once():
    log = line(20, LOOP, logging__Logger__info=20.0, torch___tensor_str___str=19.0)
    assert lines(log).raised("BRR305") and not lines(log).raised("BRR304")


def test_small_change_adds_up_to_one_finding_at_its_costliest_line():
    many = tuple(line(1.0 + 0.1 * n, Span("train.py", n, "main"), json__dumps=1.0 + 0.1 * n) for n in range(6))
    (found,) = lines(*many).raised("BRR304")
    assert found.where[0].line == 5 and found.saving.expected_ns == pytest.approx(0.95 * 7.5 * MS)
    assert not lines(many[0]).raised("BRR304"), "one per cent of the step"


def test_without_samples_the_profiled_functions_name_the_cause():
    case = Case(extra={"host": (host(20, LOOP, functions=("copy._deepcopy_dict", "copy.deepcopy")),)})
    assert case.raised("BRR303")[0].where == (LOOP,)
    assert not any(Case(extra={"host": (host(20, LOOP),)}).raised(f"BRR30{n}") for n in (3, 4, 5))


def collected(ms: float, at: Span | None = None, **extra) -> Case:
    facts = Facts(gc_ns_per_step=ms * MS, gc_runs_per_step=1.0, gc_span=at, gc_by_hand=1.0 if at else 0.0)
    return Case(facts=facts, accounts=(Account("gc", ms * MS, ms / 100),), extra=extra)


def test_collecting_by_hand_is_told_at_its_line():
    (found,) = collected(20, LOOP, lines=(line(23, LOOP),)).raised("BRR306")
    assert found.where == (LOOP,) and found.saving.expected_ns == pytest.approx(19 * MS)
    assert found.saving.ceiling_ns == pytest.approx(23 * MS), "all that the line takes"
    both = collected(20, LOOP, lines=(line(23, LOOP),), host=(host(23, LOOP),))
    assert not both.raised("BRR302")


def test_collections_that_came_by_themselves_are_told_though_the_program_has_a_call():
    """gc.collect() after the run, and a step that makes many objects."""
    case = collected(20, LOOP, lines=(line(60, LOOP),))
    case.facts = replace(case.facts, gc_by_hand=0.1)
    (found,) = case.raised("BRR306")
    assert found.where == () and "by itself" in found.message
    assert found.evidence["collections"].value == 18 * MS
    assert collected(1, LOOP, lines=(line(23, LOOP),), host=(host(23, LOOP),)).raised("BRR302"), "not what it costs"


def test_a_library_that_collects_is_named_and_cannot_be_told_to_leave_it():
    case = collected(20, LOOP)
    library = Span("/venv/lib/python3.11/site-packages/lib/training.py", 493, "epoch")
    optimizer = OptimizerFacts(0, "Adam", span=LOOP)
    case.facts = replace(case.facts, gc_span=None, gc_library=library, optimizers=(optimizer,))
    (found,) = case.raised("BRR306")
    assert found.message.startswith("gc.collect() at lib/training.py:493 runs 1.0 times per step and takes 20")
    assert found.where == (LOOP,) and found.saving.expected_ns == pytest.approx(16 * MS)
    assert "Remove" not in found.advice and "gc.freeze" in found.advice


@pytest.mark.parametrize(("asked", "said"), [(1.0, "gc.collect() runs"), (0.0, "runs by itself")])
def test_collections_of_few_steps_are_of_the_mean_step(asked, said):
    """A quarter of 40 steps collects for 60 ms; the usual step does not."""
    walls = (100 * MS,) * 30 + (160 * MS,) * 10
    case = collected(13.04, LOOP if asked else None)
    case.facts = replace(case.facts, gc_usual_ns=0.0, gc_runs_per_step=0.25)
    case.accounts = ()
    case.step = replace(case.step, mean_ns=115 * MS, walls=walls, waits=(0.0,) * 40)
    (found,) = case.raised("BRR306")
    assert found.rare and said in found.message and "once in 4 steps" in found.message
    assert "15.0 ms (13.0 %) per step, on average" in found.message
    assert found.evidence["collections"].value == pytest.approx(15 * MS, rel=1e-3)
    case.step = replace(case.step, walls=(100 * MS,) * 30 + (104 * MS,) * 10, waits=(0.0,) * 40)
    assert bool(case.raised("BRR306")) == bool(asked), "else they lie in the wait for a batch"


@pytest.mark.parametrize(("runs", "said"), [(2.0, "2.0 times per step"), (0.02, "once in 50 steps"), (None, "again")])
def test_how_often_it_runs_is_said_in_words_that_fit(runs, said):
    case = collected(20, LOOP)
    case.facts = Facts(gc_ns_per_step=20 * MS, gc_runs_per_step=runs, gc_span=LOOP, gc_by_hand=1.0)
    assert said in case.raised("BRR306")[0].message


def test_the_automatic_collector_is_nobodys_line():
    (found,) = collected(12).raised("BRR306")
    assert found.where == () and "gc.freeze" in found.advice and found.severity == "note"


def test_collections_inside_the_wait_for_a_batch_are_the_loaders():
    case = collected(20)
    case.accounts = (Account("gc", 4 * MS, 0.04), Account("data_wait", 60 * MS, 0.6))
    assert case.raised("BRR306")[0].evidence["collections"].value == 4 * MS
    case.signals = ALL_SIGNALS - {"ops"}
    assert case.raised("BRR306")[0].evidence["collections"].value == 20 * MS


def test_a_collector_that_costs_little_or_was_not_seen_is_not_told():
    assert not collected(3).raised("BRR306")
    assert not Case(facts=Facts()).raised("BRR306")


def test_what_a_call_that_writes_holds_goes_with_the_functions_that_write():
    """f.write(json.dumps(row)); os.fsync(f): json has a third of the line's time, the disk the rest."""
    there = replace(line(9, LOOP, json__encoder__JSONEncoder__iterencode=3.0), held=0.0, writing=5.0 * MS)
    (found,) = lines(there).raised("BRR304")
    assert found.evidence["time"].value == pytest.approx(8 * MS)
    (whole,) = lines(replace(there, writing=8.0 * MS)).raised("BRR304")
    assert whole.evidence["time"].value == pytest.approx(9 * MS), "no more than the line"
    case = lines(there)
    case.extra["host"] = (host(8, LOOP),)
    assert not case.raised("BRR302"), "it is no Python"
