"""35: tokens that are not padding: to the cap, in collate, in buckets, packed."""

from __future__ import annotations

from collections import Counter

import numpy as np

from gobrrr.data import BucketBatchSampler, pack
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

CAP, BATCH = 512, 32
PUBLISHED = {"to the cap": 15.6, "in collate": 22.9, "buckets": 94.0, "packed": 99.98}


def measure(bench: Bench) -> Found:
    """Real tokens as a share of all, for log-normal lengths, each way carried out and counted."""
    draw = np.random.RandomState(0)
    lengths = np.clip(draw.lognormal(4.0, 0.9, bench.size(100_000, 2_000)), 1, CAP).astype(int)
    order = draw.permutation(len(lengths))
    batches = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
    bins = pack(lengths, CAP)
    shares = {
        "to the cap": lengths.mean() / CAP,
        "in collate": _share(lengths, batches),
        "buckets": _share(lengths, list(BucketBatchSampler(lengths.tolist(), BATCH, seed=0))),
        "packed": lengths.sum() / (len(bins) * CAP),
    }
    assert Counter(int(i) for b in bins for i in b) == Counter(range(len(lengths)))
    rows = [Row(name, Figure.exact(100 * float(share)), PUBLISHED[name], unit="%") for name, share in shares.items()]
    least = -(-int(lengths.sum()) // CAP)
    rows.append(Row("packed rows over the least that hold all", Figure.exact(len(bins) / least), 1.0, unit="x"))
    return Found(Figure.exact(float(shares["packed"] / shares["in collate"])), None, tuple(rows))


def _share(lengths: np.ndarray, batches: list) -> float:  # type: ignore[type-arg]
    """Return the share of tokens where each batch is padded to its longest sequence."""
    whole = sum(len(batch) * int(lengths[np.asarray(batch)].max()) for batch in batches)
    return float(lengths[np.concatenate([np.asarray(b) for b in batches])].sum() / whole)


EXPERIMENT = Experiment(
    number=35, chapter="data", title="Padding: to the cap, in collate, in buckets, packed",
    claim="Padding to a cap wastes most tokens of common data; padding in collate somewhat less; batches of like "
    "length hardly any; packing none.",
    source="course EDLS, week 2 (BRAIN, BIG BRAIN, ULTRA BRAIN); lengths log-normal, cap 512, batch 32",
    published="15.6, 22.9, 94 and 99.98 % of the tokens are real",
    factor="share of real tokens, packed over padded in collate, 100,000 log-normal lengths",
    reproduced=(3.0, 5.0),
    why="A batch is as long as its longest member, and among 32 drawn at random one is nearly always long. Sorting "
    "a few batches' worth by length before cutting them leaves little; packing fills each row to the brim. The "
    "model's time follows the tokens, attention's their square, so what is real work decides. Where lengths hardly "
    "differ nothing is gained.",
    measure=measure, finding=("padded_to_512", "BRR409"), needs=(), seconds=5.0,
)  # fmt: skip
