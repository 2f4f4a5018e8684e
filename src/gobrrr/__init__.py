"""gobrrr finds out why a PyTorch program is slow. Importing it loads no torch."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gobrrr.integrations.watch import steps, watch
    from gobrrr.pipeline.traces import diagnose
    from gobrrr.trial.race.callables import compare

__version__ = "0.1.0"
__all__ = ["__version__", "compare", "diagnose", "steps", "watch"]

# Name -> the module that defines it, imported on first use: `import gobrrr` must stay cheap.
_LAZY = {
    "compare": "gobrrr.trial.race.callables",
    "diagnose": "gobrrr.pipeline.traces",
    "steps": "gobrrr.integrations.watch",
    "watch": "gobrrr.integrations.watch",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'gobrrr' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: object) -> None:
    """%load_ext gobrrr: cells that begin with %%gobrrr are watched."""
    from gobrrr.integrations.watch import load

    load(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
