"""Tests beside each other share the cores: threads of torch that have nothing to do must not keep them busy."""

from __future__ import annotations

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch is loaded. Two workers whose idle OpenMP threads spin took 340 s for the guard's tests, not 11.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A worker per core: `make test-full` has the threads that users have.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
