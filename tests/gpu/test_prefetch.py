"""Batches copied ahead on a CUDA or ROCm device: whole, though memory is used again while copies are under way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device"),
]


def test_on_a_gpu_every_batch_arrives_whole() -> None:
    """Memory is reused while copies and kernels are under way: a wrong order shows as a wrong sum."""
    memory = torch.empty(1 << 22).pin_memory()

    class Loader:
        def __iter__(self) -> Iterator[dict[str, object]]:
            for at in range(200):
                yield {"pinned": memory.fill_(at), "pageable": torch.full((1 << 20,), float(at))}

    from gobrrr.data import prefetch

    sums = []
    for batch in prefetch(Loader(), "cuda"):
        busy = torch.ones(2048, 2048, device="cuda")
        for _ in range(4):
            busy = busy @ busy / 2048
        sums.append(torch.stack([batch["pinned"].mean(), batch["pageable"].mean()]))
    assert torch.stack(sums).cpu().tolist() == [[at, at] for at in range(200)]
