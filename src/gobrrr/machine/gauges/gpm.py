"""Activity of SMs and tensor cores between two looks: counters of NVML's GPM, which Hopper and newer devices have."""

from __future__ import annotations

from typing import Any


class Activity:
    """Counters of one device. Raises an exception of NVML's, or AttributeError, where it has none."""

    def __init__(self, ml: Any, handle: Any) -> None:
        self._ml, self._handle = ml, handle
        if not ml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise AttributeError("no GPM")
        self._before, self._now = ml.nvmlGpmSampleAlloc(), ml.nvmlGpmSampleAlloc()
        ml.nvmlGpmSampleGet(handle, self._before)

    def read(self) -> tuple[float | None, float | None]:
        """Return the shares of SMs and of tensor cores that worked since the last look; null what is not told."""
        ml = self._ml
        asked = ml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = ml.NVML_GPM_METRICS_GET_VERSION, 2
        for metric, number in zip(
            asked.metrics, (ml.NVML_GPM_METRIC_SM_UTIL, ml.NVML_GPM_METRIC_ANY_TENSOR_UTIL), strict=False
        ):
            metric.metricId = number
        ml.nvmlGpmSampleGet(self._handle, self._now)
        asked.sample1, asked.sample2 = self._before, self._now
        ml.nvmlGpmMetricsGet(asked)
        self._before, self._now = self._now, self._before
        sm, tensor = (each.value / 100 if each.nvmlReturn == 0 else None for each in asked.metrics[:2])
        return sm, tensor
