"""A step on more ranks: collectives by formulas, the slowest of many by closed forms, the whole by a simulation."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from gobrrr.capture.steps.ranks import buckets
from gobrrr.ledger.job.forecast import (
    MEASURED,
    Network,
    Planned,
    Seen,
    exposed_ns,
    forecast,
    measured_network,
    slowest_ns,
    transfer_ns,
)

GIGABIT = Network(125e6, 50e3)  # 50 us
MB = 1e6


@pytest.mark.parametrize(
    ("kind", "ranks", "ms"),
    [  # by hand: rounds x 50 us + bytes / 125 MB/s
        ("all-reduce", 1, 0.0), ("all-reduce", 2, 2 * 0.05 + 80), ("all-reduce", 4, 6 * 0.05 + 1.5 * 80),
        ("all-gather", 4, 3 * 0.05 + 0.75 * 80), ("reduce-scatter", 8, 7 * 0.05 + 0.875 * 80),
        ("broadcast", 8, 3 * 0.05 + 80), ("all-reduce", 8192, 2 * 13 * 0.05 + 2 * 80),
    ],
)  # fmt: skip
def test_ten_megabytes_take_what_the_formula_says(kind: str, ranks: int, ms: float) -> None:
    assert transfer_ns(kind, 10 * MB, ranks, GIGABIT) == pytest.approx(ms * 1e6)


def test_the_slowest_of_many_is_as_the_closed_forms_say() -> None:
    """Exponential draws: the harmonic number less one. Uniform ones: (n - 1) / (n + 1) of the half width."""
    drawn = random.Random(0)
    exponential = sorted(drawn.expovariate(1) - 1 for _ in range(4000))
    uniform = sorted(drawn.uniform(-1, 1) for _ in range(4000))
    for ranks in (2, 8, 64, 1024, 100_000):
        harmonic = sum(1 / k for k in range(1, ranks + 1)) - 1
        assert slowest_ns(exponential, ranks) == pytest.approx(harmonic, rel=0.12), ranks
    for ranks in (2, 8, 64):
        assert slowest_ns(uniform, ranks) == pytest.approx((ranks - 1) / (ranks + 1), rel=0.03)
    assert slowest_ns(exponential, 1) == slowest_ns([0.0], 8) == 0.0


def simulated(ranks: int, network: Network, sizes: list[float], steps: int = 400) -> Seen:
    """A job whose ranks work for 40 ms and more, and then sum buckets, one behind another."""
    drawn = random.Random(ranks)
    own = np.array([[40e6 + drawn.expovariate(1) * 4e6 for _ in range(ranks)] for _ in range(steps)])
    each = [transfer_ns("all-reduce", size, ranks, network) for size in sizes]
    walls = own.max(axis=1) + sum(each)
    differ = (own - own.mean(axis=1, keepdims=True)) * ((ranks / (ranks - 1)) ** 0.5 if ranks > 1 else 1)
    spread = np.sort((differ if ranks > 1 else own - own.mean()).ravel())
    plan = tuple(Planned("all-reduce", size, 1.0, ns) for size, ns in zip(sizes, each, strict=True))
    return Seen(
        ranks=ranks, steps=steps, step_ns=walls.mean(), own_ns=own.mean(), backward_ns=0.0, plan=plan, on_host=True,
        exposed_ns=sum(each), spread=tuple(spread.tolist()),
    )  # fmt: skip


@pytest.mark.parametrize("seen_on", [2, 4])
@pytest.mark.parametrize("ranks", [1, 2, 8, 64])
def test_a_simulated_job_is_forecast_from_fewer_ranks(seen_on: int, ranks: int) -> None:
    sizes = [1.0 * MB, 6.0 * MB, 1024.0]
    seen, truth = (simulated(n, GIGABIT, sizes) for n in (seen_on, ranks))
    network = measured_network(seen)
    assert network is not None and network.rate == pytest.approx(125e6, rel=0.05)
    (point,) = forecast(seen, network, [ranks]).points
    assert point.step_ns == pytest.approx(truth.step_ns, rel=0.05)
    assert point.low_ns <= truth.step_ns * 1.03 and truth.step_ns * 0.97 <= point.high_ns
    assert point.speedup == pytest.approx(ranks * seen.own_ns / point.step_ns)


def test_what_was_seen_is_told_as_it_was_and_intervals_widen() -> None:
    seen = simulated(4, GIGABIT, [4.0 * MB])
    network = measured_network(seen)
    assert network is not None
    points = forecast(seen, network, [4, 8, 64, 512]).points
    assert points[0].step_ns == pytest.approx(seen.step_ns) and points[0].low_ns == points[0].high_ns
    widths = [point.high_ns - point.low_ns for point in points]
    assert widths == sorted(widths) and all(p.low_ns <= p.step_ns <= p.high_ns for p in points)


@pytest.mark.parametrize(
    "plan",
    [(Planned("all-reduce", 4096.0, 150.0, 200e3),),
     (Planned("broadcast", 2e6, 3.0, 9e6), Planned("all-reduce", 2e6, 1.0, 5e6)),
     (Planned("all-gather", 512.0, 40.0, 9e5), Planned("all-reduce", 9e6, 2.0, 1e6))],
)  # fmt: skip
@pytest.mark.parametrize("ranks", [2, 8])
def test_a_measured_network_gives_back_the_run_that_it_is_of(plan: tuple[Planned, ...], ranks: int) -> None:
    seen = Seen(ranks=ranks, steps=9, step_ns=100e6, own_ns=60e6, backward_ns=20e6, exposed_ns=40e6, plan=plan,
                on_host=True)  # fmt: skip
    network = measured_network(seen)
    assert network is not None
    here, more = forecast(seen, network, [ranks, 4 * ranks]).points
    assert here.step_ns == pytest.approx(100e6) and here.low_ns == here.high_ns
    assert more.step_ns >= here.step_ns


def test_what_backward_hides_is_that_of_one_piece_behind_another() -> None:
    """Against the queue itself, piece by piece."""
    drawn = random.Random(5)
    for _ in range(50):
        plan = tuple(Planned("all-reduce", drawn.uniform(1, 9) * MB, float(drawn.randint(1, 9))) for _ in range(3))
        seen = Seen(ranks=1, steps=9, step_ns=60e6, own_ns=60e6, backward_ns=40e6, plan=plan)
        calls = [drawn.uniform(1e6, 30e6) for _ in plan]
        sent, ready, done = sum(one.calls * one.size for one in plan), 0.0, 0.0
        for ns, one in zip(calls, plan, strict=True):
            for _ in range(int(one.calls)):
                ready += 40e6 * one.size / sent
                done = max(done, ready) + ns / one.calls
        assert exposed_ns(seen, calls)[0] == pytest.approx(max(0.0, done - 40e6))


def test_transfers_that_a_profiler_lengthened_hide_no_given_links() -> None:
    """Of 5 ms that were recorded 1.5 ms showed; 3 ms of another link, at the end of backward, show whole."""
    plan = (Planned("all-reduce", MB, 1.0, 5e6),)
    seen = Seen(ranks=2, steps=9, step_ns=4.2e6, own_ns=2.7e6, backward_ns=1e6, exposed_ns=1.5e6, plan=plan,
                on_host=True)  # fmt: skip
    (point,) = forecast(seen, Network(MB / 3e-3, 0.0), [2]).points
    assert point.exposed_ns == pytest.approx(3e6) and point.step_ns == pytest.approx(2.7e6 + 3e6)
    assert point.low_ns < point.step_ns < point.high_ns


def test_backward_hides_all_but_the_last_bucket_at_most() -> None:
    """Four buckets, ready after 10, 20, 30 and 40 ms: of 5 ms each the last one shows; of 20 ms each 50 ms do."""
    plan = (Planned("all-reduce", MB, 4.0),)
    seen = Seen(ranks=1, steps=9, step_ns=60e6, own_ns=60e6, backward_ns=40e6, plan=plan)
    assert exposed_ns(seen, [20e6]) == pytest.approx((5e6, 5e6, 20e6))
    assert exposed_ns(seen, [80e6])[0] == pytest.approx(50e6)
    on_host = Seen(ranks=1, steps=9, step_ns=60e6, own_ns=60e6, backward_ns=40e6, plan=plan, on_host=True)
    assert exposed_ns(on_host, [20e6])[1] == pytest.approx(12.5e6)


def test_one_rank_measures_no_network() -> None:
    assert measured_network(Seen(ranks=1, steps=9, step_ns=1.0, own_ns=1.0, backward_ns=0.0)) is None
    assert Network(1.0, 1.0).reached == MEASURED and math.isclose(MEASURED[1], 1.0)


def test_published_efficiencies_of_bert_lie_between_all_hidden_and_none() -> None:
    """Eight GPUs did 94 % of eight times one in fp32, 88 % in fp16 (docs/find-out/scale.md): steps of 32 sequences,
    440 and 220 MB of gradients over PCIe 3."""
    for rate, sent, published in ((124, 440 * MB, 0.94), (224, 220 * MB, 0.88)):
        step = 32 / rate * 1e9
        plan = (Planned("all-reduce", 25.0 * MB, sent / 25 / MB),)
        seen = Seen(ranks=1, steps=9, step_ns=step, own_ns=step, backward_ns=step / 2, plan=plan)
        (point,) = forecast(seen, Network(16e9, 5e3), [8]).points
        assert step / point.high_ns < published < step / point.low_ns


def test_buckets_are_torchs() -> None:
    """Against torch's own assignment, of sizes that are drawn."""
    torch = pytest.importorskip("torch")
    drawn = random.Random(3)
    for first, cap in ((1 << 20, 25 << 20), (4096, 65536)):
        params = [torch.empty(drawn.randrange(1, 40_000)) for _ in range(200)]
        groups, _ = torch.distributed._compute_bucket_assignment_by_size(params, [first, cap], [False] * 200)
        sizes = [sum(params[at].numel() * 4 for at in group) for group in groups]
        assert buckets([4 * p.numel() for p in params], first, cap) == sizes
