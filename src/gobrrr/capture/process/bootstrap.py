"""The first moments of a watched process: give back its environment, wait for torch, begin to watch."""

import os
import sys

from gobrrr.capture.process.config import VARIABLE, Config

TYPE_CHECKING = False
if TYPE_CHECKING:  # neither typing nor __future__ is imported: a program's start is its own
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Protocol

    class Watcher(Protocol):
        """Interface to the start-up code, `gobrrr.watch()` and `gobrrr.steps()`. One per process at a time."""

        config: Config
        ended: bool
        nested: bool
        """Begun by `gobrrr.watch()`, not by the start of the process."""

        def begin(self) -> None:
            """Install what watches; called once torch is imported whole."""

        def end(self, reason: str = "exit") -> None:
            """Take it off and keep what was seen; safe to call twice."""

        def forked(self) -> None:
            """This process is a forked child of the watched one."""

        def mark(self) -> None:
            """An explicit step ends here."""


# Programs that only start other programs: their children are the ones to watch, so the environment goes on to them.
_LAUNCHERS = ("gobrrr", "torchrun", "accelerate", "accelerate-launch", "deepspeed", "horovodrun")
_LAUNCHER_MODULES = (
    "gobrrr", "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli", "deepspeed.launcher.runner", "deepspeed.launcher.launch",
)  # fmt: skip

OLDEST = (2, 6)
"""torch that has all that capture stands on."""
session: "Watcher | None" = None
failure = ""
"""Why this process could not be watched."""
_registered = False


def begin(inject: str) -> None:
    """Called by the injected sitecustomize, from the folder `inject`, before the program's first line."""
    config = Config.from_env()
    if config is None:
        return
    if is_launcher(sys.orig_argv, sys.argv):
        return
    restore_environment(config, inject)
    _seen(config, None)
    if config.first is not None:
        _named(config.first)(config)
    TorchWatcher(config).install()


def spawned(text: str) -> None:
    """Watch this process, which multiprocessing has started anew and whose modules are imported."""
    try:
        config = Config.from_env(text)
        if config is None:
            return
        config.spawned = 1
        if "torch" in sys.modules:
            _seen(config, None)
            watch(config)
        else:
            TorchWatcher(config).install()
    except Exception:
        return  # the process is not watched, and goes on


def _seen(config: Config, torch: str | None, failed: str | None = None) -> None:
    """Leave a note that this process was reached: without steps it is all there is to explain an empty recording.

    Nothing is said here: the streams are the program's, and descriptor 2 may be any file of its own by now. A folder
    that cannot be written is found out by whoever reads it.
    """
    path = os.path.join(config.folder, f"seen-{os.getpid()}.json")  # noqa: PTH118
    note = f'{{"executable": {_quoted(sys.executable)}, "torch": {_quoted(torch)}, "failed": {_quoted(failed)}}}'
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(file, note.encode())
        finally:
            os.close(file)
    except OSError:
        pass


def _quoted(text: str | None) -> str:
    """A JSON string, without the json module."""
    plain = (c if " " <= c <= "~" and c not in '"\\' else f"\\u{min(ord(c), 0xFFFD):04x}" for c in text or "")
    return "null" if text is None else f'"{"".join(plain)}"'


def is_launcher(orig_argv: list[str], argv: list[str]) -> bool:
    """Whether what this Python runs is a launcher of ranks: the script or the module itself, never an argument of it.

    The interpreter has parsed its own options by now: argv[1:] are the program's, the word before them names it.
    """
    name = argv[0] if argv else ""
    if name == "-m":
        word = orig_argv[len(orig_argv) - len(argv)]
        module = word[word.find("m") + 1 :] if word.startswith("-") else word  # -mname, -umname
        return module in _LAUNCHER_MODULES
    return os.path.basename(name) in _LAUNCHERS  # noqa: PTH119


def restore_environment(config: Config, inject: str) -> None:
    """Take our variables out, so that the program and its children see what a plain run sees.

    A shell script on the way may have put more into PYTHONPATH: what it put there stays.
    """
    del os.environ[VARIABLE]
    path = os.environ.get("PYTHONPATH", "")
    ours = inject if not config.pythonpath else inject + os.pathsep + config.pythonpath
    if path == ours and config.pythonpath is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = path.replace(ours, config.pythonpath or "", 1)


class TorchWatcher:
    """A meta path finder that lets torch be found as always, and begins to watch once it has been executed.

    It stays until then: a program may look for torch (find_spec) and never import it, or import it later.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._plain: list[Any] = []

    def install(self) -> None:
        """Stand first, in a list of our own: another thread may be going through it when the plain one comes back."""
        self._plain, sys.meta_path = sys.meta_path, [self, *sys.meta_path]

    def remove(self) -> None:
        """Give the program its own list back, with what it has put in meanwhile."""
        self._plain[:] = [finder for finder in sys.meta_path if finder is not self]
        sys.meta_path = self._plain

    def find_spec(self, name: str, path: "Any" = None, target: "ModuleType | None" = None) -> "ModuleSpec | None":
        """Only torch is of interest; any other name goes to the finders behind this one."""
        if name != "torch" or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                if hasattr(type(spec.loader), "exec_module") and hasattr(spec.loader, "__dict__"):
                    vars(spec.loader)["exec_module"] = _Execution(self, spec.loader)
                return spec
        return None

    def executed(self) -> None:
        """Torch is there, whole."""
        watch(self._config)


class _Execution:
    """Stands before the exec_module of one loader, which is in all else as it was found, until torch is executed."""

    def __init__(self, watcher: TorchWatcher, loader: "Any") -> None:
        self._watcher, self._loader = watcher, loader

    def __call__(self, module: "ModuleType") -> None:
        if module.__name__ != "torch" or self._watcher not in sys.meta_path:  # a loader of several; torch once more
            type(self._loader).exec_module(self._loader, module)
            return
        del self._loader.exec_module
        self._watcher.remove()
        try:
            self._loader.exec_module(module)
        except BaseException:
            self._watcher.install()  # the program may mend it and try again
            raise
        self._watcher.executed()

    # The interpreter leaves its import system's frames out of a traceback: this one is part of it while torch loads.
    __call__.__code__ = __call__.__code__.replace(co_filename="<frozen importlib._bootstrap_external>")

    def __eq__(self, other: object) -> bool:
        """Loaders are compared by what they hold: two of one file stay equal."""
        return isinstance(other, _Execution)

    __hash__ = None  # type: ignore[assignment]


def watch(config: Config) -> "Watcher | None":
    """Begin to watch this process; a failure is noted for whoever reads the recording, and costs nothing else."""
    global session, failure
    version = None
    failure = ""
    try:
        import torch

        version = str(torch.__version__)
        _seen(config, version)
        if is_too_old(version):
            failure = f"torch {version} is too old"
            return None
        begun: Watcher = _named(config.watcher)(config)
        begun.begin()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        _seen(config, version, failure)
        return None
    session = begun
    _at_the_end()
    return session


def _at_the_end() -> None:
    """Once per process, however often it is watched: neither kind of callback can be taken back."""
    global _registered
    if not _registered:
        _registered = True
        import atexit

        atexit.register(lambda: session.end() if session is not None else None)
        os.register_at_fork(after_in_child=lambda: session.forked() if session is not None else None)


def _named(name: str) -> "Any":
    """Return the object that a Config calls "module:name"."""
    from importlib import import_module

    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def is_too_old(version: str) -> bool:
    """Say whether torch lacks what capture stands on."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit()) < OLDEST


def need_torch() -> None:
    """Raises TorchMissing where it is not installed here; under `gobrrr run` the watching begins with it."""
    try:
        import torch  # noqa: F401
    except ImportError:
        from gobrrr.errors import TorchMissing

        raise TorchMissing("torch is not installed", f"{sys.executable} -m pip install torch") from None
