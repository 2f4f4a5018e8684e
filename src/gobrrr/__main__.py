"""`python -m gobrrr` is `gobrrr`."""

from __future__ import annotations

import sys

from gobrrr.cli.main import main

sys.exit(main())
