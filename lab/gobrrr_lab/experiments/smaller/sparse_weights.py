"""40: zeros in a weight: who skips them?"""

from __future__ import annotations

import warnings

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found, Row

SHARES = (0.5, 0.9, 0.99)


def measure(bench: Bench) -> Found:
    """A product with weights of which 90 % are zero: dense, and as compressed rows of several densities."""
    torch = bench.torch
    size, x = bench.size(1024, 16), torch.rand(bench.size(1024, 16), bench.size(64, 4))
    dense = torch.randn(size, size)
    holes = {share: dense * (torch.rand(size, size) >= share) for share in SHARES}
    of = 2 + len(SHARES)
    factor = bench.pair(lambda: dense @ x, lambda: holes[0.9] @ x, of=of)
    rows = []
    for share, weight in holes.items():
        with warnings.catch_warnings():  # compressed rows are "in beta" since 2021
            warnings.simplefilter("ignore", UserWarning)
            compressed = weight.to_sparse_csr()
        if not torch.allclose(compressed @ x, weight @ x, atol=1e-3):
            raise GobrrrError("the compressed product differs")
        figure = bench.pair(lambda: dense @ x, lambda c=compressed: c @ x, of=of)  # type: ignore[misc]
        rows.append(Row(f"{share:.0%} zeros, compressed rows", figure, x=1 / (1 - share), unit="x"))
    pattern = dense * (torch.arange(size) % 4 < 2)
    rows.append(
        Row("2:4 pattern, dense kernel", bench.pair(lambda: dense @ x, lambda: pattern @ x, of=of), 1.0, unit="x")
    )
    return Found(factor, 1.0, tuple(rows))


EXPERIMENT = Experiment(
    number=40, chapter="smaller", title="Zeros in a weight: where nothing gets faster, and where it does",
    claim="Pruned weights are no faster in a dense kernel, which multiplies zeros as well; compressed formats pay "
    "only where nearly all is zero, and 2:4 patterns only on hardware that knows them.",
    source="course YDS (2026), week 10; Gale et al., The State of Sparsity (2019)",
    published="dense kernels gain nothing; 2:4 gives 1.50x of the possible 2 on an A100, where int8 gives 2.32x",
    factor="time of a dense product with random weights over one with 90 % zeros, dense kernel",
    reproduced=(0.93, 1.07),
    why="A dense kernel is a schedule of loads and multiply-adds that does not look at the numbers. Compressed "
    "rows skip zeros, and pay for an index with each number and for scattered reads: a dense kernel reaches tens of "
    "times their rate. So the density at which they win lies at a few per cent. Structured patterns keep the "
    "schedule, but need units for it.",
    measure=measure, axis="dense over kept weights", seconds=12.0,
)  # fmt: skip
