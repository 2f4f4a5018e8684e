"""No test asserts a time: hypothesis's own deadline is one, and a busy machine misses it."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("gobrrr", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gobrrr")
