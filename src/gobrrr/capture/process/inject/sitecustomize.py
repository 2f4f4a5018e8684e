"""Runs at the start of a watched Python: hands over to bootstrap.py, then to the sitecustomize it hides."""

import os
import sys


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (not pathlib: nothing is loaded yet)
    root = here
    for _ in range(4):
        root = os.path.dirname(root)  # noqa: PTH120
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]  # noqa: PTH100
    had = root in sys.path
    if not had:
        sys.path.append(root)
    try:
        from gobrrr.capture.process import bootstrap

        bootstrap.begin(here)
    except Exception as error:
        os.environ.pop("GOBRRR_CAPTURE", None)
        if sys.stderr is not None:  # still the stream that this process was started with: nothing of its own has run
            sys.stderr.write(f"gobrrr: cannot watch this process: {error}\n")
    finally:
        if not had and root in sys.path:
            sys.path.remove(root)


_begin()
del sys.modules["sitecustomize"]
# The environment's own, which this one stood before. Where there is none, the error ends this module's import too: site
# passes over it as in a plain run, and no sitecustomize is left behind.
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
