"""The first moments of a watched process: give back its environment, wait for torch, begin to watch."""

from __future__ import annotations

import os
import sys

from gobrrr.capture.config import VARIABLE, Config

TYPE_CHECKING = False
if TYPE_CHECKING:  # not even typing is imported: a program's start is its own
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from gobrrr.capture.session import Session

# Programs that only start other programs: their children are the ones to watch, so the environment goes on to them.
_LAUNCHERS = ("gobrrr", "torchrun", "accelerate", "deepspeed", "mpirun", "horovodrun", "pytest-forked")
_LAUNCHER_MODULES = ("gobrrr", "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")

OLDEST = (2, 6)
session: Session | None = None
_registered = False


def begin() -> None:
    """Called by the injected sitecustomize, before the program's first line."""
    config = Config.from_env()
    if config is None:
        return
    if is_launcher(sys.orig_argv):
        return
    restore_environment(config)
    _seen(config, None)
    if config.source is not None:
        from gobrrr.trial.writes import keep_out

        keep_out(config.source, config.folder)
    sys.meta_path.insert(0, TorchWatcher(config))


def _seen(config: Config, torch: str | None) -> None:
    """Leave a note that this process was reached: without steps it is all there is to explain an empty recording."""
    path = os.path.join(config.folder, f"seen-{os.getpid()}.json")  # noqa: PTH118
    try:
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(f'{{"executable": {_quoted(sys.executable)}, "torch": {_quoted(torch)}}}')
    except OSError as error:
        sys.stderr.write(f"gobrrr: cannot write into {config.folder}: {error.strerror}\n")


def _quoted(text: str | None) -> str:
    """A JSON string, without the json module."""
    plain = (c if " " <= c <= "~" and c not in '"\\' else f"\\u{min(ord(c), 0xFFFD):04x}" for c in text or "")
    return "null" if text is None else f'"{"".join(plain)}"'


def is_launcher(argv: list[str]) -> bool:
    """Whether this process is a launcher of ranks, by its command line."""
    words = [os.path.basename(word) for word in argv[1:3]]  # noqa: PTH119
    if any(word in _LAUNCHERS for word in words):
        return True
    return any(argv[i] == "-m" and argv[i + 1] in _LAUNCHER_MODULES for i in range(1, min(len(argv) - 1, 6)))


def restore_environment(config: Config) -> None:
    """Take our variables out, so that the program and its children see what a plain run sees."""
    del os.environ[VARIABLE]
    if config.pythonpath is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = config.pythonpath


class TorchWatcher:
    """A meta path finder that lets torch be found as always and begins to watch once it is imported whole."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Only torch is of interest; any other name goes to the finders behind this one."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._config)  # type: ignore[assignment]
        return spec


class _Loader:
    """Runs the real loader, puts it back where it belongs, and begins."""

    def __init__(self, real: Any, config: Config) -> None:
        self._real, self._config = real, config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        result: ModuleType | None = self._real.create_module(spec)
        return result

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        module.__loader__ = self._real
        self._real.exec_module(module)
        watch(self._config)

    # The interpreter leaves its import system's frames out of a traceback: this one is part of it while torch loads.
    exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap_external>")


def watch(config: Config) -> Session | None:
    """Begin to watch this process; a failure is said once and costs nothing else."""
    global session
    try:
        import torch

        _seen(config, torch.__version__)
        if _too_old(torch.__version__):
            return None
        if config.source is not None:
            from gobrrr.trial.writes import tell_of_torch_save

            tell_of_torch_save()
        begun = _watcher(config)
        begun.begin()
    except Exception as error:
        sys.stderr.write(f"gobrrr: cannot watch this process: {type(error).__name__}: {error}\n")
        return None
    session = begun
    _at_the_end()
    return session


def _watcher(config: Config) -> Session:
    """Who watches: the session of `gobrrr run`, or an arm's side of a trial, timed or observed."""
    if config.mode == "observe":
        from gobrrr.trial.observing import Observing

        return Observing(config)  # type: ignore[return-value]
    if config.mode == "arm":
        from gobrrr.trial.inside import Inside

        return Inside(config)  # type: ignore[return-value]
    from gobrrr.capture.session import Session

    return Session(config)


def _at_the_end() -> None:
    """Once per process, however often it is watched: neither kind of callback can be taken back."""
    global _registered
    if _registered:
        return
    _registered = True
    import atexit

    atexit.register(lambda: session.end() if session is not None else None)
    os.register_at_fork(after_in_child=lambda: session.forked() if session is not None else None)


def _too_old(version: str) -> bool:
    """Whether torch lacks what capture stands on."""
    numbers = [int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit()]
    return tuple(numbers) < OLDEST
