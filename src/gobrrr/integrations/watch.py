"""`gobrrr.watch()` and `gobrrr.steps()`: for notebooks, and for programs whose steps cannot be found."""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gobrrr.capture.process import bootstrap
from gobrrr.capture.process.config import Config
from gobrrr.errors import GobrrrError
from gobrrr.system import run_folder

if TYPE_CHECKING:
    from gobrrr.rules.verdict.report import Report

T = TypeVar("T")


class Watched:
    """A watched block: the folder of its recording and, once the block has ended, its report: printed by `report()`,
    as an object in `result`, in a notebook as a page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._result: Report | None = None

    @property
    def result(self) -> Report:
        """The report. Raises GobrrrError where there is nothing to judge: no step, a block that has not ended."""
        if self._result is None:
            from gobrrr.pipeline import runs

            self._result = runs.told(self.folder, list(sys.argv), python=sys.executable)
        return self._result

    def __repr__(self) -> str:
        try:
            return self.result.verdict.sentence
        except GobrrrError as error:
            return f"gobrrr: {error}"

    def _repr_html_(self) -> str | None:
        """The page in a frame of its own, so that neither its style nor its script meets the notebook's."""
        import html

        from gobrrr.pipeline import runs

        try:
            page = runs.page_of_folder(self.folder, self.result)
        except GobrrrError:
            return None
        frame = 'sandbox="allow-scripts" style="width: 100%; height: 40em; border: 0"'
        return f'<iframe {frame} srcdoc="{html.escape(page.decode("utf-8", "replace"))}"></iframe>'

    def report(self) -> None:
        """Show the diagnosis on stderr (again)."""
        from gobrrr.pipeline import runs

        runs.explain(self.folder, list(sys.argv), 0, python=sys.executable)


@contextlib.contextmanager
def watch(folder: str | Path | None = None, *, show: bool = True) -> Generator[Watched, None, None]:
    """Watch the steps inside the block as `gobrrr run` would, and report when it ends.

    Raises GobrrrError where a watch is on already (under `gobrrr run` the block changes nothing: the run is watched),
    TorchMissing where torch is not installed.
    """
    bootstrap.need_torch()
    if bootstrap.session is not None and not bootstrap.session.ended:
        if bootstrap.session.nested:
            raise GobrrrError("gobrrr.watch() inside gobrrr.watch()", "end the outer block first")
        yield Watched(Path(bootstrap.session.config.folder))
        return
    target = (run_folder.fresh("watch") if folder is None else run_folder.claim(Path(folder))).resolve()  # it may chdir
    session = bootstrap.watch(Config(str(target)))
    if session is None:
        raise GobrrrError(f"this process cannot be watched: {bootstrap.failure}", "gobrrr needs torch 2.6 or newer")
    session.nested = True
    watched = Watched(target)
    try:
        yield watched
    finally:
        session.end("block ended")
        bootstrap.session = None
        if show:
            from gobrrr.pipeline import runs

            with contextlib.suppress(OSError):
                runs.tell(target, list(sys.argv), 0, python=sys.executable)


def steps(batches: Iterable[T]) -> Iterator[T]:
    """Yield the batches unchanged, each iteration one step of a watched run; where none is watched does nothing, and in
    a notebook says so."""
    if bootstrap.session is None and hasattr(builtins, "__IPYTHON__"):
        sys.stderr.write("gobrrr: nothing is watched here; put the loop below `with gobrrr.watch():`\n")
    for batch in batches:
        yield batch
        session = bootstrap.session
        if session is not None and not session.ended:
            session.mark()


def load(shell: Any) -> None:
    """Register the magic in an IPython shell."""

    def gobrrr(line: str, cell: str) -> Watched | None:
        """%%gobrrr [FOLDER]: watch this cell, show why its steps take as long as they do."""
        with watch(line.strip() or None, show=False) as watched:
            done = shell.run_cell(cell, store_history=False)
        return watched if done.success else None

    shell.register_magic_function(gobrrr, "cell")
