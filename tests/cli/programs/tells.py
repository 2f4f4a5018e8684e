"""Says how it was started; loads no torch."""

import json
import os
import sys

print(
    json.dumps(
        [sys.argv, sys.path, os.getcwd(), __name__, __file__, repr(__spec__).split(" object at")[0], sys.stdin.read()]
    )
)
print(json.dumps({name: value for name, value in os.environ.items() if name != "_"}))
print(sorted(name for name in sys.modules if not name.startswith(("gobrrr", "__future__"))))
print(sys.flags, sys.warnoptions, sys.executable, sys.orig_argv[1:])
