"""Runs at the start of a watched Python: hands over to gobrrr.capture.bootstrap, then to the sitecustomize it hides."""

import importlib.util
import sys
from pathlib import Path


def _begin() -> None:
    here = Path(__file__).resolve().parent
    root = str(here.parents[2])
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    had = root in sys.path
    if not had:
        sys.path.append(root)
    try:
        from gobrrr.capture import bootstrap

        bootstrap.begin()
    except Exception as error:
        sys.stderr.write(f"gobrrr: cannot watch this process: {error}\n")
    finally:
        if not had and root in sys.path:
            sys.path.remove(root)


def _hidden() -> None:
    """The environment's own sitecustomize, which ours stands before on the path."""
    ours = sys.modules.pop("sitecustomize", None)
    spec = importlib.util.find_spec("sitecustomize")
    if ours is not None:
        sys.modules["sitecustomize"] = ours  # the import that runs us takes it from there
    if spec is not None and spec.loader is not None and spec.origin != __file__:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_begin()
_hidden()
