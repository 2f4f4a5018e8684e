"""What all tests share: threads that do not spin beside each other, and no deadline of Hypothesis's."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch is loaded. Two workers whose idle OpenMP threads spin took 340 s for the guard's tests, not 11.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A worker per core: `make test-full` has the threads that users have.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A deadline asserts a time, and a busy machine misses it.
settings.register_profile("gobrrr", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gobrrr")
