"""`python -m gobrrr` is `gobrrr`."""

from __future__ import annotations

import contextlib
import os
import sys

with contextlib.suppress(FileNotFoundError):  # a folder that is gone holds nothing to import; main says so
    if sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109 - nothing more is imported for it
        del sys.path[0]  # -m puts the current folder first: a numpy.py that lies there is not ours to import

from gobrrr.cli.main import main

sys.exit(main())
