"""The table of slow idioms: each file is sound, and the rule sees what its signs say and nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest
from msgspec.structs import replace

from gobrrr.errors import GobrrrError
from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Account, LineGroup, Statement, WorkerGroup
from gobrrr.recording.model.facts import Facts, LoaderFacts, Span
from gobrrr.remedies.edits import catalogue
from gobrrr.rules import unknown_only
from gobrrr.rules.idioms import slow_idioms, table
from gobrrr.rules.idioms.table import Idiom, Pair, Rewrite, Seen, idioms
from gobrrr.rules.model.finding import BOUNDS, Finding, Saving
from tests.support.handmade import MS, Case, op
from tests.support.patching import patched

ALL = {each.name: each for each in idioms()}
CALL, LOOP = Span("train.py", 20, "forward"), Span("train.py", 90, "<module>")
PAIR = Pair("a = 1  # ill\nb = 1  # well\n", times=2.0, left=0.25)


def made(**seen: object) -> Idiom:
    return Idiom("overhead", "it is slow", "Do it otherwise.", ("https://example.org",), Seen(**seen), PAIR, name="odd")


def told(monkeypatch: pytest.MonkeyPatch, case: Case, *known: Idiom) -> list[Finding]:
    monkeypatch.setattr(slow_idioms, "idioms", lambda: known)
    return case.raised("BRR320")


@pytest.mark.parametrize("idiom", ALL.values(), ids=ALL)
def test_a_file_says_what_people_need_and_its_pair_is_two_programs(idiom):
    assert idiom.bound in BOUNDS and len(idiom.says.split()) <= 16 and not idiom.says.endswith(".")
    assert all(len(part.split()) <= 25 for part in re.split(r"[.?] ", idiom.advice)) and idiom.advice.endswith(".")
    assert idiom.sources and all(each.startswith("https://") for each in idiom.sources)
    assert idiom.seen.ops or idiom.seen.functions or idiom.seen.source
    assert idiom.pair.times >= 1.3 and 0 <= idiom.pair.left < 1, "python -m benchmarks.idioms --write measures them"
    ill, well = (ast.parse(idiom.pair.text(twin)) for twin in ("ill", "well"))
    assert ast.dump(ill) != ast.dump(well) and idiom.pair.guilty and idiom.pair.change
    assert re.fullmatch(r"[a-z][a-z0-9_]+", idiom.name)


@pytest.mark.parametrize("idiom", [each for each in ALL.values() if each.seen.source], ids=lambda each: each.name)
def test_the_source_that_it_is_known_by_is_in_a_guilty_line(idiom):
    """In the line that a report names, which is that of the edit where this is another one."""
    tree = ast.parse(idiom.pair.text("ill"))
    guilty = set(idiom.pair.guilty)
    if idiom.place:
        lines = [ast.unparse(node).partition("\n")[0] for node in ast.walk(tree) if isinstance(node, ast.stmt)]
        places = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)
                  and re.search(idiom.place, ast.unparse(node).partition("\n")[0])]  # fmt: skip
        assert len(places) == 1 and places[0] in guilty and any(re.search(idiom.seen.source, line) for line in lines)
        return
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno in guilty]
    assert any(re.search(idiom.seen.source, ast.unparse(node).partition(":\n")[0]) for node in found)


REWRITTEN = [each for each in ALL.values() if each.rewrite is not None]


@pytest.mark.parametrize("idiom", REWRITTEN, ids=lambda each: each.name)
def test_a_rewrite_changes_the_slow_program_once(idiom):
    ill = idiom.pair.text("ill")
    after = patched(ill, [catalogue.edit(idiom.name).change], idiom.pair.guilty)
    assert after != ill
    assert patched(after, [catalogue.edit(idiom.name).change], idiom.pair.guilty) == after


@pytest.mark.slow
@pytest.mark.parametrize("idiom", REWRITTEN, ids=lambda each: each.name)
def test_a_rewritten_program_says_what_it_said(idiom, tmp_path):
    def output(text: str) -> list[float]:
        (tmp_path / "program.py").write_text(text)
        done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
        return [float(word) for word in re.findall(r"-?\d+\.\d+", done.stdout)]

    ill = idiom.pair.text("ill")
    for name in idiom.pair.needs:
        pytest.importorskip(name)
    after = output(patched(ill, [catalogue.edit(idiom.name).change], idiom.pair.guilty))
    assert after == pytest.approx(output(ill), rel=1e-3, abs=1e-4)


def test_a_pair_is_cut_at_its_marks():
    pair = Pair("a\nslow(  # ill\n)  # ill\nfast()  # well\nx = slow_and_fast  # seen\n", 2.0, 0.5)
    assert (
        pair.text("ill") == "a\nslow(\n)\nx = slow_and_fast\n" and pair.text("well") == "a\nfast()\nx = slow_and_fast\n"
    )
    assert pair.guilty == (4,) and pair.change == "- slow(\n- )\n+ fast()"


def test_a_file_that_is_no_idiom_says_why(tmp_path, monkeypatch):
    (tmp_path / "topic").mkdir()
    (tmp_path / "topic" / "wrong.toml").write_text('bound = "slow"\n')
    monkeypatch.setattr(table, "FOLDER", tmp_path)
    with pytest.raises(GobrrrError, match=r"wrong.toml is no idiom"):
        table.idioms.__wrapped__()


def test_time_of_ops_and_of_what_runs_inside_them_is_told_at_their_line(monkeypatch):
    inside = replace(op("fill_", (8,), ms=10, where=(CALL, LOOP)), parents=("aten::renorm", "aten::fill_"))
    case = Case(ops=(inside, op("renorm", (8,), ms=30, where=(CALL, LOOP)), op("mm", (8, 8), ms=60)))
    (found,) = told(monkeypatch, case, made(ops=("aten::renorm",)))
    assert found.name == "odd" and found.where[0] == CALL and found.bound == "overhead"
    assert found.saving.expected_ns == pytest.approx(30 * MS) and found.saving.low_ns == pytest.approx(15 * MS)
    assert 40 * MS <= found.saving.ceiling_ns < 45 * MS and not found.remedies


@pytest.mark.parametrize("more", [
    {"calls": 5.0}, {"factor": 1e9}, {"dtypes": ("double",)}, {"aspect": 3.0}, {"phases": ("backward",)},
    {"source": "renorm"},
])  # fmt: skip
def test_all_signs_must_be_there(monkeypatch, more):
    work = replace(op("renorm", (8,), ms=40, where=(CALL, LOOP)), floor_ns=1.0)
    assert not told(monkeypatch, Case(ops=(work,)), made(ops=("aten::renorm",), **more))


@pytest.mark.parametrize(("text", "around", "named"), [
    ("y = slow(x)", ("for x in xs",), True), ("y = fast(x)", ("for x in xs",), False), ("y = slow(x)", (), False),
])  # fmt: skip
def test_source_is_that_of_the_line_and_around_it(monkeypatch, text, around, named):
    lines = (LineGroup((CALL, LOOP), 40 * MS, "other"), LineGroup((LOOP,), 60 * MS, "other"))
    written = (Statement(CALL, text, around), Statement(LOOP, "slow(y)"))
    case = Case(extra={"lines": lines, "statements": written})
    found = told(monkeypatch, case, made(source=r"\bslow\(", around="^for "))
    assert [each.where[0] for each in found] == ([CALL] if named else [])


@pytest.mark.parametrize(("file", "around", "named"), [
    ("rows = deque()\nrows[i]", "for i in rows", True), ("rows = []\nother = deque()", "for i in rows", False),
    ("rows = deque()", "for i in others", False),
])  # fmt: skip
def test_signs_may_ask_how_what_the_statement_names_was_made(monkeypatch, file, around, named):
    written = Statement(CALL, "y = rows[i]", (around,), file)
    case = Case(extra={"lines": (LineGroup((CALL, LOOP), 40 * MS, "other"),), "statements": (written,)})
    asked = made(source=r"(?P<kept>\w+)\[", made="^{kept} = deque", around="in {kept}$")
    assert bool(told(monkeypatch, case, asked)) is named


@pytest.mark.parametrize("inside", [True, False])
def test_what_a_line_calls_counts_where_the_idiom_says_so(monkeypatch, inside):
    case = Case(ops=(op("mm", (8, 8), ms=40, where=(CALL, LOOP)),), extra={"statements": (Statement(LOOP, "made()"),)})
    found = told(monkeypatch, case, made(ops=("aten::mm",), source="^made", inside=inside))
    assert [each.where for each in found] == [(LOOP,)] * inside


def test_signs_may_ask_for_several_lines_and_for_a_kind_of_step(monkeypatch):
    other = Span("train.py", 21, "forward")
    ops = (op("renorm", (8,), ms=40, where=(CALL, LOOP)), op("renorm", (8,), ms=20, where=(other, LOOP)))
    for known, named in (
        ({"lines": 2}, 1),
        ({"lines": 3}, 0),
        ({"kinds": ("training",)}, 1),
        ({"kinds": ("loop",)}, 0),
    ):
        assert len(told(monkeypatch, Case(ops=ops), made(ops=("aten::renorm",), **known))) == named


@pytest.mark.parametrize(("grows", "drift", "ms"), [(True, 1.0, 50), (True, 0.05, 10), (False, 1.0, 10)])
def test_what_steps_get_longer_by_is_that_of_an_idiom_that_grows(monkeypatch, grows, drift, ms):
    """Steps of 50 to 150 ms: the first third's are of 66.7, the last third's of 133.3, the median of 100."""
    case = Case(ops=(op("renorm", ms=10, where=(CALL,)),))
    ledger = case.ledger
    step = replace(ledger.step, drift=drift, count=90)
    monkeypatch.setattr(slow_idioms, "idioms", lambda: (made(ops=("aten::renorm",), grows=grows),))
    (found,) = slow_idioms.slow_idiom(replace(ledger, step=step), case.machine)
    assert step.plain_wall_ns == 100 * MS and found.saving.ceiling_ns == pytest.approx(ms * MS, rel=0.01)


def test_a_functions_time_is_its_own_part_of_the_line(monkeypatch):
    line = LineGroup((CALL, LOOP), 60 * MS, "other", libraries=(("json.decoder.decode", 40 * MS), ("re.match", 5 * MS)))
    (found,) = told(monkeypatch, Case(extra={"lines": (line,)}), made(functions=("json.",)))
    assert found.holds_ns == 0 and found.saving.expected_ns == pytest.approx(30 * MS)


def test_of_workers_time_counts_what_the_loop_waits(monkeypatch):
    workers = tuple(
        WorkerGroup(0, "getitem", (Span("data.py", n, "__getitem__"),), ms * MS, libraries=((name, ms * MS),))
        for n, ms, name in ((5, 30, "json.loads"), (6, 10, "re.match"))
    )
    case = Case(
        facts=Facts(loaders=(LoaderFacts(0, num_workers=2),)), extra={"workers": workers},
        accounts=(Account("data_wait", 20 * MS, 0.2),),
    )  # fmt: skip
    (found,) = told(monkeypatch, case, made(functions=("json.",)))
    assert found.where[0].line == 5 and found.saving.expected_ns == pytest.approx(0.75 * 15 * MS)


def test_where_a_device_works_a_line_counts_as_far_as_that_idles(monkeypatch):
    device = DeviceLedger("gpu", 95 * MS, 5 * MS, 0.95)
    lines = (LineGroup((CALL, LOOP), 60 * MS, "other", libraries=(("json.loads", 60 * MS),)),)
    assert not told(monkeypatch, Case(extra={"lines": lines, "device": device}), made(functions=("json.",)))


def test_little_is_not_told(monkeypatch):
    assert not told(monkeypatch, Case(ops=(op("renorm", ms=2, where=(CALL,)),)), made(ops=("aten::renorm",)))


def test_of_two_at_a_line_the_one_with_a_sign_in_the_source_is_told(monkeypatch):
    case = Case(ops=(op("renorm", ms=40, where=(CALL,)),), extra={"statements": (Statement(CALL, "renorm(x)"),)})
    written = replace(made(ops=("aten::renorm",), source="renorm"), name="written")
    assert [each.name for each in told(monkeypatch, case, made(ops=("aten::renorm",)), written)] == ["written"]


@pytest.mark.parametrize(("dtype", "known"), [("long int", True), ("float", False)])
def test_the_dtype_is_that_of_the_op_and_not_of_those_that_it_calls(
    dtype: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product of a sparse matrix converts its indices, which are integers."""
    product = replace(op("mm", (8, 8), (8, 8), ms=1, where=(CALL,)), dtypes=(dtype, dtype))
    within = replace(op("copy_", (8, 8), ms=40, where=(CALL,)), dtypes=("long int",), parents=("aten::mm",))
    case = Case(ops=(product, within))
    assert bool(told(monkeypatch, case, made(ops=("aten::mm",), dtypes=("long int",)))) == known


def test_general_advice_gives_way_to_the_idiom_below_its_line():
    def finding(code: str, expected: float, *where: Span) -> Finding:
        return Finding(code, "", "overhead", "warning", Saving(0, expected, 90), "", where=where)

    loop, idiom, small = (
        finding("BRR301", 50, LOOP),
        finding("BRR320", 40, CALL, LOOP),
        finding("BRR320", 10, CALL, LOOP),
    )
    assert unknown_only([loop, idiom]) == [idiom] and unknown_only([loop, small]) == [loop, small]
    assert unknown_only([finding("BRR301", 50, Span("other.py", 1)), idiom])[1] == idiom


def test_an_edit_that_an_idiom_names_makes_its_pair_fast():
    named = [each for each in idioms() if each.edit]
    assert named
    for each in named:
        before = each.pair.text("ill")
        assert patched(before, [catalogue.edit(each.edit).change]) != before


def test_a_rewrite_is_offered_and_made_at_the_findings_line(monkeypatch):
    idiom = replace(made(ops=("aten::renorm",)), rewrite=Rewrite(r"slow\((\w+)\)", r"fast(\1)", "import quick"))
    monkeypatch.setattr(catalogue, "idioms", lambda: (idiom,))
    assert catalogue.all_names()[-1] == "odd"
    change, text = (
        catalogue.edit("odd").change,
        'import os\nz = slow(a)\nprint("x", slow(b))\nfor q in slow(c):\n    pass\n',
    )
    assert patched(text, [change], [3]) == text.replace('print("x", slow(b))', "print('x', fast(b))").replace(
        "import os\n", "import os\nimport quick\n"
    )
    assert patched(text, [change], [5]).count("fast(") == 2, "where the line itself has none, all of the file"
    (found,) = told(monkeypatch, Case(ops=(op("renorm", ms=40, where=(CALL,)),)), idiom)
    assert found.remedies == ("odd",)


def test_a_product_that_swells_counts_with_all_of_its_line(monkeypatch):
    """60 x 8 by 8 x 50 makes six times what goes in; what backward takes at the line is of it too."""
    swells = op("bmm", (4, 60, 8), (4, 8, 50), ms=20, where=(CALL, LOOP))
    others = op("mul", (4, 60, 50), ms=20, where=(CALL, LOOP), phase="backward")
    seen = {"ops": ("aten::bmm", "aten::mul"), "swells": 5.0}
    (found,) = told(monkeypatch, Case(ops=(swells, others)), made(**seen))
    assert found.saving.expected_ns == pytest.approx(0.75 * 40 * MS)
    assert not told(monkeypatch, Case(ops=(swells, others)), made(**{**seen, "swells": 7.0}))


def test_what_is_slow_on_a_cpu_alone_is_not_told_where_an_accelerator_works(monkeypatch):
    work = op("lstm", (8,), ms=40, where=(CALL, LOOP))
    idiom = made(ops=("aten::lstm",), cpu=True)
    assert told(monkeypatch, Case(ops=(work,)), idiom)
    monkeypatch.setattr(slow_idioms, "at_lines", lambda *_: pytest.fail("it was looked for"))
    ledger = replace(Case(ops=(work,)).ledger, device=object())
    assert slow_idioms.found_in(ledger) == []


def test_the_line_of_the_edit_comes_first_where_it_is_the_only_one(monkeypatch):
    work = op("lstm", (8,), ms=40, where=(CALL, LOOP))
    places = {"self.cell = nn.LSTM(8, 8)": 7, "self.other = nn.LSTM(8, 8)": 8}
    written = Statement(CALL, "y = self.cell(x)", places=places)
    case = Case(ops=(work,), extra={"statements": (written,)})
    idiom = replace(made(ops=("aten::lstm",)), place="^{name} = .*LSTM")
    (found,) = told(monkeypatch, case, idiom)
    assert [each.line for each in found.where[:2]] == [7, CALL.line]
    (found,) = told(monkeypatch, case, replace(idiom, place="LSTM"))
    assert found.where[0] == CALL, "two lines make one: nobody knows which"


@pytest.mark.parametrize(("name", "text", "module"), [
    ("nms_in_python", "out = model(window)", "overlap = 128\nwhile start < x.shape[0]:\n    out = model(window)"),
    ("gradient_of_each_sample", "g = grad(loss, params)", "for x, y in zip(xs, ys):\n    g = grad(loss, params)"),
    ("packed_lstm_on_cpu", "out, n = pad_packed_sequence(packed)", "packed = pack_padded_sequence(x, n)"),
    ("lora_not_merged", "y = model(x)", "model.merge_adapter()"),
    ("lists_in_arrow", "for x in loader", "rows = load_dataset('texts')"),
    ("graph_transform_per_access", "for x in loader", "data = ShapeNet(root, transform=T.SamplePoints(1024))"),
    ("graph_transform_per_access", "for x in loader", "def __init__(self, root, transform=None):\n    pass"),
    ("h5_chunk_of_many", "x = file[i]", "file.create_dataset('x', (9, 8), chunks=(1, 8))"),
    ("counted_pixel_by_pixel", "visits[step % 4, :] += 1", "for step in range(9):"),
    ("counted_pixel_by_pixel", "visits[states, actions] += 1", "for states, rewards in zip(a, b):"),
    ("latents_decoded_in_callback", "pipe(x)", "for num_inference_steps in (10, 20):"),
    ("latents_decoded_in_callback", "pipe(x)", "for frame in denoised_frames:"),
    ("h5_rows_by_index", "x = file[key][:]", "key = random.choice(keys)"),
    ("h5_rows_by_index", "x = file[i]", "i = np.searchsorted(ends, index)"),
    ("sqrtm_for_trace", "w = inv(sqrtm(cov))", "print(np.trace(cov))"),
    ("update_bn_every_epoch", "update_bn(loader, model)", "for fold in folds:"),
    ("logits_kept_for_metrics", "trainer.evaluate()", "Trainer(compute_metrics=f, preprocess_logits_for_metrics=g)"),
])  # fmt: skip
def test_what_looks_alike_is_no_idiom(monkeypatch, name, text, module):
    idiom = replace(ALL[name], seen=replace(ALL[name].seen, functions=(), ops=(), phases=(), kinds=(), lines=1))
    around = tuple(line.rstrip(":") for line in module.splitlines() if line.startswith(("for", "while")))
    written = Statement(CALL, text, around, module)
    lines = (LineGroup((CALL, LOOP), 40 * MS, "other"), LineGroup((LOOP,), 60 * MS, "other"))
    assert not told(monkeypatch, Case(extra={"lines": lines, "statements": (written,)}), idiom)


@pytest.mark.parametrize(("name", "text", "module"), [
    ("counted_pixel_by_pixel", "self.matrix[t, p] += 1", "for p, t in zip(pred, label):"),
    ("counted_pixel_by_pixel", "matrix[int(a), int(b)] += 1", "for a, b in zip(x, y):"),
    ("latents_decoded_in_callback", "self.on_step(i, latents)", "for i, t in enumerate(scheduler.timesteps):"),
    ("h5_rows_by_index", "x = flux[rows]", "rows = np.sort(rng.choice(len(flux), size=n, replace=False))"),
    ("sqrtm_for_trace", "r = np.trace(scipy.linalg.sqrtm(a @ b).real)", "r = np.trace(scipy.linalg.sqrtm(a @ b).real)"),
    ("sqrtm_for_trace", "covmean, _ = linalg.sqrtm(a.dot(b), disp=False)", "tr = np.trace(covmean)"),
    ("update_bn_every_epoch", "update_bn(loader, model)", "for epoch in range(9):"),
])  # fmt: skip
def test_what_people_write_is_the_idiom(monkeypatch, name, text, module):
    idiom = replace(ALL[name], seen=replace(ALL[name].seen, functions=(), ops=(), phases=(), kinds=(), lines=1))
    around = tuple(line.rstrip(":") for line in module.splitlines() if line.startswith(("for", "while")))
    lines = (LineGroup((CALL, LOOP), 40 * MS, "other"), LineGroup((LOOP,), 60 * MS, "other"))
    written = Statement(CALL, text, around, module)
    assert told(monkeypatch, Case(extra={"lines": lines, "statements": (written,)}), idiom)


def test_a_loop_over_a_loader_is_no_loop_over_a_tensor():
    """What its transforms select and unbind lies at the loop's line."""
    source = ALL["loop_over_tensor"].seen.source
    assert re.search(source, "for row in labels") and re.search(source, "for a, b in zip(x, y)")
    assert not any(re.search(source, f"for data in {name}") for name in ("loader", "train_loader", "val_dl", "batches"))
