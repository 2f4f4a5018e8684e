"""What a model is given, of every layout."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from gobrrr.guard.watch.digest import look
from gobrrr.guard.watch.inputs import Computed, data_of, fingerprint

DENSE = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])


def of(how: str, dense: torch.Tensor) -> torch.Tensor:
    """A tensor of another kind with these values."""
    if how == "quantized":
        return torch.quantize_per_tensor(dense, 1.0, 0, torch.quint8)
    if how in ("nested", "jagged"):
        layout = torch.jagged if how == "jagged" else torch.strided
        return torch.nested.nested_tensor([dense[0], dense[1, :2]], layout=layout)
    if how == "blocks":
        return dense.to_sparse_bsr((1, 1))
    return getattr(dense, f"to_{how}")()


KINDS = ("sparse", "sparse_csr", "sparse_csc", "blocks", "mkldnn", "nested", "jagged", "quantized")


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_other_values_have_another_digest(how: str) -> None:
    one, same, other = (of(how, values) for values in (DENSE, DENSE.clone(), DENSE * 2))
    assert data_of((one,), Computed()) == data_of((same,), Computed())
    assert data_of((one,)).digest != data_of((other,)).digest
    assert fingerprint([one]) == fingerprint([same]) != fingerprint([other])


def test_a_large_graph_is_not_made_dense() -> None:
    size = 1 << 20  # made dense it has 2^42 bytes
    graph = torch.sparse_coo_tensor(torch.tensor([[0, size - 1], [1, 2]]), torch.tensor([1.0, 2.0]), (size, size))
    found = data_of((graph, torch.ones(4, 2)))
    assert (found.num_elements, len(found.rows), found.moments) == (2 * 2 + 2 + 8, 4, (1.0, 0.0, 8.0))


def test_what_has_no_values_is_nothing() -> None:
    assert data_of((torch.empty(2, 2, device="meta"),)) == data_of(())


def test_a_tensor_that_holds_others_is_read_as_those() -> None:
    """An encoder in eval mode makes a nested one of a padded batch: reading it ended the program."""
    rows = [torch.randn(3, 4), torch.randn(5, 4)]
    flat = look(torch.cat([row.reshape(-1) for row in rows]))
    nested = look(torch.nested.nested_tensor(rows))
    assert (nested.digest, nested.norm) == (flat.digest, flat.norm)
    for one in (torch.nested.nested_tensor(rows, layout=torch.jagged), TwoTensor(*rows[:1], rows[0] + 1)):
        assert look(one) == look(one) and look(one).digest != look(one * 2).digest


def test_a_tensor_that_names_more_than_tensors_is_looked_at() -> None:
    """A DTensor of FSDP2 names its mesh among what it is made of: the guard died on it."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        plain = torch.arange(6.0).reshape(3, 2)
        sharded = distribute_tensor(plain, init_device_mesh("cpu", (1,)), [Shard(0)])
        assert look(sharded).norm == look(plain).norm == pytest.approx(55**0.5)
    finally:
        dist.destroy_process_group()
