"""`python hurried.py PLAIN_MS run ...`: gobrrr as it is, but its windows open after so few milliseconds, so that short
programs meet all of them; and a line on stderr parts what the program wrote from what gobrrr reports."""

from __future__ import annotations

import os
import sys
from typing import Any

MARK = b"\n---------- here the program has ended, and gobrrr reports ----------\n"
MILLISECOND = 1_000_000


def main() -> int:
    """As gobrrr's own main()."""
    from gobrrr.capture.process import launch
    from gobrrr.capture.process.config import Config
    from gobrrr.cli.main import main as gobrrr

    plain_ns = int(sys.argv.pop(1)) * MILLISECOND
    Config.__init__.__kwdefaults__.update(plain_ns=plain_ns, sample_ns=20 * MILLISECOND)  # type: ignore[union-attr]
    run = launch.run

    def marked(*args: Any, **kwargs: Any) -> int:
        code = run(*args, **kwargs)
        if sys.stderr is not None:  # closed when we were started: the number may be another file's
            os.write(2, MARK)
        return code

    launch.run = marked
    return gobrrr(sys.argv[1:])


if __name__ == "__main__":
    sys.path.pop(0)
    sys.exit(main())
