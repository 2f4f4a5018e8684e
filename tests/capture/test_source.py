"""Lines found in sources of every kind: what adds to a container, who calls a function."""

from __future__ import annotations

import functools
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobrrr.capture.source import statements, user_code
from gobrrr.capture.source.statements import call_line, collect_lines, collecting_around, growth_line
from gobrrr.capture.windows.counting import CountWindow


def written(folder: Path, text: str | bytes, name: str = "train.py") -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    statements.tree_of.cache_clear()
    return str(path)


def line_of(folder: Path, text: str, name: str = "losses") -> int | None:
    found = growth_line(written(folder, text), name)
    return found["line"] if found else None


@pytest.mark.parametrize(
    "adds",
    [
        "losses.append(loss)",
        "losses.add(loss)",
        "losses.extend([loss])",
        "losses.appendleft(loss)",
        "losses.insert(0, loss)",
        "losses.update({step: loss})",
        "losses.setdefault(step, loss)",
        "losses.setdefault(step, []).append(loss)",
        "losses += [loss]",
        "losses[step] = loss",
        "losses[step][1] = loss",
        "losses[step].append(loss)",
        "losses[step] += loss",
        "self.losses.append(loss)",
        "self.losses[step] = loss",
        "trainer.state.losses += [loss]",
        "losses = losses + [loss]",
        "last = losses[step] = loss",
        "total, _ = 0, losses.append(loss)",
        "if step: losses.append(loss)",
    ],
)
def test_every_way_to_add_is_found(tmp_path: Path, adds: str) -> None:
    assert line_of(tmp_path, f"losses = []\nfor step in range(9):\n    loss = step\n    {adds}\n") == 4


@pytest.mark.parametrize(
    "other",
    [
        "losses = []",
        "losses = [loss]",
        "print(losses)",
        "losses.sort()",
        "losses.clear()",
        "loss = losses[-1]",
        "other.append(losses)",
        "losses.history.append(loss)",
        "history[losses] = loss",
        "losses = other + [loss]",
        "del losses[0]",
    ],
)
def test_what_adds_nothing_is_not_taken_for_it(tmp_path: Path, other: str) -> None:
    assert line_of(tmp_path, f"for step in range(9):\n    {other}\n") is None


def test_the_line_in_the_loop_is_told_before_the_one_that_runs_once(tmp_path: Path) -> None:
    text = "losses = []\nlosses.append(0)\nfor step in range(9):\n    losses.append(step)\nlosses.append(1)\n"
    assert line_of(tmp_path, text) == 4
    assert line_of(tmp_path, "losses.append(0)\ndef log(loss):\n    losses.append(loss)\n") == 3
    assert line_of(tmp_path, "x = 1\nlosses.append(0)\nlosses.append(1)\n") == 2


def test_the_last_call_of_the_first_file_that_has_one_is_told(tmp_path: Path) -> None:
    none = written(tmp_path, "x = 1\n", "a.py")
    some = written(tmp_path, "import gc\ngc.collect()\ndef f():\n    collect()\n\nself.gc.collect(1)\n", "b.py")
    more = written(tmp_path, "collect()\n", "c.py")
    assert call_line([none, some, more], ("collect",)) == {"file": some, "line": 6, "function": ""}
    assert call_line([none], ("collect",)) is None
    assert call_line([some], ("set_num_threads", "detect_anomaly")) is None
    assert call_line([], ("collect",)) is None


def test_names_that_are_no_calls_are_not_told(tmp_path: Path) -> None:
    text = 'collect = 1\n"gc.collect()"\n# gc.collect()\nfrom gc import collect\nf = gc.collect\n'
    assert call_line([written(tmp_path, text)], ("collect",)) is None


def test_collections_by_hand_are_told_from_other_methods_of_that_name(tmp_path: Path) -> None:
    plain = written(
        tmp_path, "import gc\ngc.collect()\nenv.collect(n=9)\nself.gc.collect()\nframe.lazy().collect()\n", "a.py"
    )
    named = written(tmp_path, "def f():\n    import gc as g\n    g.collect()\ngc.collect()\n", "b.py")
    alone = written(tmp_path, "from gc import collect as c\nc()\ncollect()\n", "c.py")
    other = written(tmp_path, "from sampling import collect\ncollect()\n", "d.py")
    found = [(plain, 2), (named, 3), (alone, 2)]
    assert collect_lines([plain, named, alone, other, str(tmp_path / "gone.py")]) == found


def test_a_librarys_call_is_told_where_its_function_is_on_the_stack(tmp_path: Path) -> None:
    text = """
import gc
import types

def epoch(step):
    step()
    gc.collect()

def elsewhere(step):
    step()
    types.SimpleNamespace(collect=len).collect(())

def tidy():
    gc.collect()
"""
    file, found = written(tmp_path, text, "library.py"), []
    names: dict[str, Callable[[Callable[[], None]], None]] = {}
    exec(compile(text, file, "exec"), names)

    def step(user: bool) -> Callable[[], None]:
        return lambda: found.append(collecting_around(sys._getframe(), lambda name: user and name == file))

    names["epoch"](step(user=False))
    names["epoch"](lambda: names["elsewhere"](step(user=False)))
    names["elsewhere"](step(user=False))
    names["epoch"](step(user=True))
    told = {"file": file, "line": 7, "function": "epoch"}
    assert found == [told, told, None, None]


def test_of_several_lines_that_collect_the_one_is_told_that_ran(tmp_path: Path) -> None:
    """The program's own may be of an earlier phase, and a library's run the loop."""
    users = written(tmp_path, "import gc\ngc.collect()\ngc.collect()\n")
    file = written(tmp_path, "import gc\n\ndef epoch(step):\n    step()\n    gc.collect()\n", "library.py")
    names: dict[str, Any] = {}
    exec(compile(Path(file).read_text(), file, "exec"), names)
    ran: set[tuple[str, int]] = {(users, 2)}
    window: Any = object.__new__(CountWindow)
    window.host = SimpleNamespace(user=SimpleNamespace(sources=lambda: [users], is_user=lambda name: name == users))
    window._lines, found = SimpleNamespace(ran=lambda: ran), []

    def step() -> None:
        found.append(window._collects())

    names["epoch"](step)
    ran.clear()
    names["epoch"](step)
    step()
    assert found == [
        {"gc_span": {"file": users, "line": 2, "function": ""}},
        {"gc_library": {"file": file, "line": 5, "function": "epoch"}},
        {"gc_span": {"file": users, "line": 3, "function": ""}},
    ]


ODD = {
    "not Python": b"def (:\n",
    "a zero byte": b"x = 1\0\n",
    "no text": bytes(range(128, 256)),
    "latin-1 undeclared": "x = 'é'\nlosses.append(1)\n".encode("latin-1"),
    "nested beyond the parser": b"(" * 5000 + b")" * 5000,
    "nested beyond the stack": b"x = " + b"-" * 100_000 + b"1\n",
    "empty": b"",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_sources_that_cannot_be_read_have_no_lines(tmp_path: Path, text: bytes) -> None:
    file = written(tmp_path, text)
    assert growth_line(file, "losses") is None
    assert call_line([file], ("append",)) is None


@pytest.mark.parametrize("text", ["# coding: latin-1\nx = 'é'\nlosses.append(1)\n".encode("latin-1")])
def test_declared_encodings_are_read(tmp_path: Path, text: bytes) -> None:
    assert growth_line(written(tmp_path, text), "losses")["line"] == 3  # type: ignore[index]


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path: Path) -> None:
    assert line_of(tmp_path, "\ufeffx = 1\r\nlosses.append(1)\r\n") == 2


def test_files_that_are_no_files_have_no_lines(tmp_path: Path) -> None:
    for file in (str(tmp_path), str(tmp_path / "gone.py"), "<string>", "<ipython-input-1>", ""):
        assert growth_line(file, "losses") is None
        assert call_line([file], ("append",)) is None


def test_a_huge_file_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "MAX_SOURCE", 10)
    assert line_of(tmp_path, "losses.append(1)\n") is None


def test_a_sources_warnings_are_not_given_again(tmp_path: Path) -> None:
    file = written(tmp_path, "pattern = '\\d'\nlosses.append(1)\n")
    shown = warnings._showwarnmsg  # type: ignore[attr-defined]
    program = f"from gobrrr.capture.source.statements import growth_line as g; print(g({file!r}, 'losses')['line'])"
    ran = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("2\n", "")
    assert growth_line(file, "losses")
    assert warnings._showwarnmsg is shown  # type: ignore[attr-defined]


def test_warnings_as_errors_cost_the_line_only(tmp_path: Path) -> None:
    file = written(tmp_path, "pattern = '\\d'\nlosses.append(1)\n")
    program = f"from gobrrr.capture.source.statements import growth_line as g; print(g({file!r}, 'losses'))"
    ran = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(st.binary(max_size=60) | st.text("losse.apnd()[]=+\n :", max_size=60).map(str.encode))
def test_whatever_the_file_holds_nothing_is_raised(tmp_path: Path, text: bytes) -> None:
    file = written(tmp_path, text)
    found = growth_line(file, "losses")
    assert found is None or 1 <= found["line"] <= text.count(b"\n") + text.count(b"\r") + 1
    call_line([file], ("append",))


class Pads:
    """A collate function with a setting."""

    def __call__(self, batch: list[object]) -> list[object]:
        return batch


@pytest.mark.parametrize(
    "wrap", [lambda f: f, functools.partial, lambda f: functools.partial(functools.partial(f), x=1)]
)
def test_an_object_is_defined_where_its_call_is(wrap: Any) -> None:
    code = Pads.__call__.__code__
    assert user_code.defined(wrap(Pads())) == user_code.defined(Pads.__call__)
    assert user_code.defined(wrap(Pads()))["line"] == code.co_firstlineno
    assert user_code.defined(wrap(len)) is None and user_code.defined(None) is None and user_code.defined(Pads) is None
