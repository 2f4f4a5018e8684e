"""Batches copied ahead on a CUDA or ROCm device: whole, though memory is used again while copies are under way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset  # noqa: E402

from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402

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


class Numbered(Dataset):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, at: int) -> torch.Tensor:
        return torch.full((1 << 20,), float(at))


@pytest.mark.parametrize("pinned", [False, True])
def test_as_a_remedy_the_program_gets_each_batch_whole(pinned: bool) -> None:
    said: list[str] = []
    seams = Seams(lambda name, detail: said.append(detail))
    install(seams, ["prefetch"])
    try:
        sums = []
        for batch in DataLoader(Numbered(), num_workers=2, pin_memory=pinned):
            there = batch.to("cuda")
            busy = torch.ones(2048, 2048, device="cuda")
            for _ in range(4):
                busy = busy @ busy / 2048
            sums.append(there.mean())
            batch.fill_(-1)  # the host's memory is the program's again
            del there
    finally:
        seams.remove()
    assert torch.stack(sums).cpu().tolist() == list(range(100)) and said == ["batches to cuda"]
