"""What all tests share: threads that do not spin, ceilings that need no measuring, no deadline of Hypothesis's."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.machine_samples import keep_ceilings

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch is loaded. Two workers whose idle OpenMP threads spin took 340 s for the guard's tests, not 11.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A worker per core: `make test-full` has the threads that users have.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Children inherit what is ignored (nohup, or a job of a shell script), and tests send them these signals; exec takes
# a handler off.
for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored is signal.SIGINT else lambda *_: None)

# A deadline asserts a time, and a busy machine misses it. `make test-full` tries as many examples as Hypothesis would.
EXAMPLES = 40 if "PYTEST_XDIST_WORKER" in os.environ else 100
settings.register_profile("gobrrr", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gobrrr")


@pytest.fixture(scope="session", autouse=True)
def _made_up_ceilings(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> None:
    """Make up ceilings of this machine for all that tests start: measuring takes 20 s. Tests on a GPU want the true."""
    if not any(item.get_closest_marker("gpu") for item in request.session.items):
        os.environ["GOBRRR_CACHE"] = str(tmp_path_factory.mktemp("cache"))
        keep_ceilings(Path(os.environ["GOBRRR_CACHE"]), os.environ)


@pytest.fixture(scope="module", autouse=True)
def _hidden_heap() -> None:
    """Hide what is there from gc: gobrrr goes through all objects of a process, and pytest has a million of them. A
    model that is to be seen belongs inside a test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stored files, laid out once: who writes is given another folder, with links to them."""
    from tests.snapshots.shelf import lay

    folder = tmp_path_factory.mktemp("shelf")
    lay(folder)
    return folder


LONGEST_FIRST = (
    "test_matrix.py", "test_run_fails.py", "test_arms.py", "test_fuzz_programs.py", "test_left_behind.py",
    "test_planted.py", "test_run_ends.py", "test_effects.py", "test_referee.py", "test_agents_loop.py", "test_mcp.py",
)  # fmt: skip
"""Files that take a worker half a minute or more: begun last, they would have one worker wait for the other."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let workers begin with the longest files (with --no-loadscope-reorder; the order within a file stays)."""
    items.sort(key=lambda item: item.path.name not in LONGEST_FIRST)
