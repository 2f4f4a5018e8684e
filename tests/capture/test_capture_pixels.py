"""Which lines of a source make bytes of pictures floats, and which resizes follow each other."""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from gobrrr.capture.source.pixel_lines import MOST, Flow, chains, float_lines, found
from gobrrr.recording.model.facts import Facts, PictureFacts
from gobrrr.recording.run_folder.noted_facts import _typed

CONVERSIONS = [
    "x = np.asarray(x).astype(np.float32) / 255",
    "x = x / 255.0",
    "x /= 255",
    "x = x * (1 / 255)",
    "x = torch.tensor(np.asarray(x)).float().div(255)",
    "x = torch.from_numpy(x).to(torch.float32).div_(255.0)",
    "return (x.astype('float32') / 127.5 - 1, 3)",
    "x = np.asarray(x, dtype=np.float32) / LEVELS",
    "f = lambda x: x.float() / 255",
    "x = np.float32(self.read(path)) / 255",
]


def tree(source: str) -> ast.Module:
    return ast.parse(textwrap.dedent(source))


def module(*lines: str) -> ast.Module:
    return tree("LEVELS = 255.0\ndef f(self, x, path):\n" + "".join(f"    {line}\n" for line in lines))


@pytest.mark.parametrize("line", CONVERSIONS)
def test_conversions_are_known(line: str):
    assert float_lines(module(line)) == [3]


@pytest.mark.parametrize(
    "line",
    [
        "x = x.astype(np.float32) / 10",  # no levels of a byte
        "x = x.astype(np.float32) / True",
        "x = cv2.resize(x, (9, 9)) / 255",  # what takes the time has no frame of its own
        "x = np.rot90(x).astype(np.float32) / 255",
        "x = decoder.decode(path) / 255",
        "x = 255",
        "print(x, 255)",
    ],
)
def test_what_is_none_is_not_taken_for_one(line: str):
    assert float_lines(module(line)) == []


def test_scaling_counts_where_the_file_has_levels_of_a_byte():
    assert float_lines(module("x = (x - mean) / std", "x -= mean")) == []
    assert float_lines(module("x = x / 255", "x = (x - mean) / std", "y = 1", "x -= mean")) == [3, 4, 6]


def test_a_statement_of_several_lines_has_them_all():
    assert float_lines(module("x = (", "    x.astype(np.float32)", ") / 255")) == [3, 4, 5]


CHAINS = {
    "one name": ("x = x.resize(a)", "x = x.resize(b)"),
    "another name": ("y = x.resize(a)", "z = y.crop(c)", "w = np.asarray(z.resize(b))"),
    "OpenCV": ("x = cv2.resize(x, a)", "y = cv2.resize(x, b)"),
    "in place": ("x.thumbnail(a)", "x = x.resize(b)"),
    "interpolate": ("x = torch.from_numpy(np.asarray(x.resize(a)))", "x = F.interpolate(x, b)"),
    "after a branch": ("if a: x = x.resize(a)", "x = x.resize(b)"),
    "in a loop's body": ("for b in a:", "  y = x.resize(b)", "  z = y.resize(c)"),
}
NONE = {
    "two views": ("a = x.resize(a)", "b = x.resize(b)"),
    "two arms": ("if a: x = x.resize(a)", "else: x = x.resize(b)"),
    "two pictures": ("x = x.resize(a)", "mask = mask.resize(a)"),
    "one resize": ("x = x.resize(a)", "y = x.crop(b)"),
    "one line": ("x = x.resize(a).resize(b)",),
    "a new picture": ("x = x.resize(a)", "x = read(path)", "x = x.resize(b)"),
    "the size of the other": ("x = x.resize(a)", "y = y.resize(x.size)"),
}


@pytest.mark.parametrize("lines", CHAINS.values(), ids=CHAINS)
def test_a_chain_is_seen(lines: tuple[str, ...]):
    (links,) = chains(module(*lines))
    last = 2 + len(lines)
    assert links == ((last - 1, last) if "for" in lines[0] else (3, last))


@pytest.mark.parametrize("lines", NONE.values(), ids=NONE)
def test_what_is_no_chain_is_not_told(lines: tuple[str, ...]):
    assert chains(module(*lines)) == []


def test_a_chain_goes_through_functions_whatever_their_order():
    source = """
        class Pictures:
            def __getitem__(self, index):
                return augmented(self.read(index))
            def read(self, index):
                return Image.open(index).resize(a)

        def augmented(picture):
            return picture.resize(b)
    """
    assert chains(tree(source)) == [(6, 9)]


def test_three_are_one_chain_and_a_function_that_calls_itself_ends():
    assert chains(module("x = x.resize(a)", "x = x.resize(b)", "x = x.resize(c)")) == [(3, 4, 5)]
    endless = tree("def f(x):\n    x = f(x)\n    x = x.resize(a)\n    return x.resize(b)")
    assert all(len(links) <= 8 for links in chains(endless))


def test_nothing_is_made_of_what_is_no_source(tmp_path: Path):
    assert float_lines(None) == [] and chains(None) == []
    (tmp_path / "broken.py").write_text("def (:")
    assert found([str(tmp_path / "broken.py"), str(tmp_path / "absent.py")], [{}]) == {"floats": [], "chains": []}
    assert Flow().seen == set()


def test_without_a_loader_no_source_is_read():
    assert found([__file__], []) == {}


def test_what_is_found_becomes_facts_and_is_bounded(tmp_path: Path):
    file = tmp_path / "data.py"
    file.write_text("def f(x):\n" + "    x = x / 255\n" * (MOST + 9) + "    x = x.resize(a)\n    return x.resize(b)\n")
    noted = found([str(file)], [{"dataset_span": None}])
    facts = _typed({"pictures": noted})
    assert len(facts.pictures.floats) == MOST and facts.pictures.floats[0].place == (str(file), 2)
    assert [span.line for span in facts.pictures.chains[0]] == [MOST + 11, MOST + 12]


@pytest.mark.parametrize("kind", [ModuleType, type("Lazy", (ModuleType,), {})])
def test_modules_beside_the_dataset_are_read_too(kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Workers alone run them; a module that loads when it is asked is left asleep."""
    file, beside = tmp_path / "transforms.py", kind("pictures_of_a_test")
    file.write_text("def f(x):\n    return x / 255\n")
    beside.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "pictures_of_a_test", beside)
    noted = found([], [{"dataset_span": {"file": str(tmp_path / "data.py"), "line": 1, "function": "f"}}])
    assert [(span["file"], span["line"]) for span in noted["floats"]] == (
        [(str(file), 2)] if kind is ModuleType else []
    )


def test_an_odd_table_costs_nothing_else():
    assert _typed({"pictures": {"floats": 3}, "gc_runs_per_step": 2.0}) == Facts(gc_runs_per_step=2.0)
    assert Facts().pictures == PictureFacts()
