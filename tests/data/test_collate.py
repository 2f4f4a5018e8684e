"""The rows that the collate makes, by hand; masks in all their forms say the same; what cannot be packed is said."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gobrrr.data import PackingCollate, block_mask, check_packable, cu_seqlens, global_labels, mask_mod, token_loss
from gobrrr.errors import GobrrrError

IDS = torch.tensor([[0, 0, 1, 1, 1, -1, -1], [2, 3, 3, -1, -1, -1, -1]])


def test_a_batch_by_hand() -> None:
    batch = PackingCollate(7, pad_id=9)([[[5, 6], torch.tensor([7, 8, 5])], [[4], [3, 2]]])
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 5, 9, 9], [4, 3, 2, 9, 9, 9, 9]]
    assert batch["position_ids"].tolist() == [[0, 1, 0, 1, 2, 0, 1], [0, 0, 1, 0, 1, 2, 3]]
    assert batch["document_ids"].tolist() == IDS.tolist()
    assert batch["labels"].tolist() == [[-100, 6, -100, 8, 5, -100, -100], [-100, -100, 2, -100, -100, -100, -100]]
    assert int(batch["num_labels"]) == 4
    rows = ["1......", "11.....", "..1....", "..11...", "..111..", ".....1.", ".....11"]
    assert batch["attention_mask"].dtype == torch.bool and batch["attention_mask"].shape == (2, 1, 7, 7)
    assert batch["attention_mask"][0, 0].int().tolist() == [[int(c == "1") for c in row] for row in rows]


def test_what_else_a_sample_has_per_token_is_packed_with_it() -> None:
    sample = {"input_ids": [5, 6], "labels": [1, -100], "token_type_ids": [1, 1], "attention_mask": [1, 1]}
    batch = PackingCollate(3, causal=False, first_position=2)([[sample]])
    assert batch["labels"].tolist() == [[1, -100, -100]] and batch["token_type_ids"].tolist() == [[1, 1, 0]]
    assert batch["position_ids"].tolist() == [[2, 3, 2]] and bool(batch["attention_mask"][0, 0, 0, 1])
    assert "labels" not in PackingCollate(3, causal=False)([[[5, 6]]])
    assert set(PackingCollate(3, keys=("input_ids", "labels"))([[sample]])) == {"input_ids", "labels"}


def test_an_empty_pack_is_a_row_of_padding_and_samples_stay_as_they_were() -> None:
    sample = {"input_ids": torch.tensor([5, 6]), "labels": torch.tensor([5, 6])}
    batch = PackingCollate(3)([[sample], []])
    assert batch["document_ids"].tolist() == [[0, 0, -1], [-1, -1, -1]] and sample["labels"].tolist() == [5, 6]
    assert int(PackingCollate(3)([[]])["num_labels"]) == 0


@pytest.mark.parametrize("causal", [True, False])
def test_all_forms_of_the_mask_say_the_same(causal: bool) -> None:
    block = block_mask(IDS, causal)
    sees = mask_mod(IDS, causal)
    at = torch.arange(7)
    for row in range(2):
        asked = sees(torch.tensor(row), torch.tensor(0), at[:, None], at[None, :])
        assert torch.equal(asked, block[row, 0])
    ends, longest = cu_seqlens(IDS)
    assert ends.tolist() == [0, 2, 5, 7, 8, 10, 14] and ends.dtype == torch.int32 and longest == 4
    apart = torch.zeros(14, 14, dtype=torch.bool)
    for first, last in itertools.pairwise(ends.tolist()):
        apart[first:last, first:last] = True
    whole = torch.block_diag(block[0, 0], block[1, 0]).bool()
    assert torch.equal(apart.tril() if causal else apart, whole)


@pytest.mark.slow  # its import takes seconds
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_takes_the_mask() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 7, 8)
    mask = create_block_mask(mask_mod(IDS), 2, None, 7, 7, device="cpu", BLOCK_SIZE=4)
    with torch.no_grad():
        found = flex_attention(query, key, value, block_mask=mask)
    wanted = F.scaled_dot_product_attention(query, key, value, attn_mask=block_mask(IDS))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_loss_counts_tokens_of_all_batches() -> None:
    logits, labels = torch.zeros(1, 4, 8), torch.tensor([[-100, 3, 4, -100]])
    assert float(token_loss(logits, labels)) == pytest.approx(2.0794415)  # ln 8
    assert float(token_loss(logits, labels, total=4)) == pytest.approx(2.0794415 / 2)
    assert float(global_labels([{"num_labels": torch.tensor(2)}, {"num_labels": torch.tensor(5)}])) == 7
    assert float(token_loss(logits, torch.full((1, 4), -100))) == 0


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        ({"ids": [1]}, "no input_ids but"),
        ({"input_ids": [1, 2], "label": 1}, r"label \[\]"),
        ({"input_ids": [[1, 2]]}, "not one row of tokens"),
        ({"input_ids": [1, 0], "attention_mask": [1, 0]}, "padded already"),
        ([1] * 9, "a pack has 9 tokens, a row 8"),
    ],
)
def test_samples_that_cannot_be_packed_are_said(sample: Any, says: str) -> None:
    with pytest.raises(GobrrrError, match=says):
        PackingCollate(8)([[sample]])


def test_samples_of_different_names_are_said() -> None:
    with pytest.raises(GobrrrError, match="different keys"):
        PackingCollate(8, causal=False)([[{"input_ids": [1]}, {"input_ids": [1], "labels": [1]}]])


class Recurrent(nn.Module):
    """State from position to position, in Python: no layer tells."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(10, 4), nn.Identity()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.mix(self.embed(input_ids).cumsum(1))  # type: ignore[no-any-return]


class Counting(Recurrent):
    """Positions counted along the row: they do not restart."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(input_ids.shape[1])[None].float()
        return self.mix(self.embed(input_ids) + places[..., None])  # type: ignore[no-any-return]


class Bag(Recurrent):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.embed(input_ids)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (nn.LSTM(4, 4), r"1 \(LSTM\) carries state"),
        (nn.GRUCell(4, 4), r"1 \(GRUCell\) carries state"),
        (nn.Conv1d(4, 4, 3), r"1 \(Conv1d\) is a convolution over positions"),
        (nn.Conv1d(4, 4, 4, stride=4), r"convolution over positions"),
        (nn.Conv2d(4, 4, (3, 1)), r"convolution over positions"),
        (nn.BatchNorm1d(4), r"1 \(BatchNorm1d\) takes its mean over all documents"),
    ],
)
def test_layers_that_mix_positions_are_refused(layer: nn.Module, says: str) -> None:
    with pytest.raises(GobrrrError, match=says):
        check_packable(nn.Sequential(nn.Linear(4, 4), layer))
    check_packable(nn.Sequential(nn.Linear(4, 4), nn.Conv1d(4, 4, 1), nn.Conv2d(3, 4, 16, stride=16)))


@pytest.mark.parametrize("kind", [Recurrent, Counting])
def test_what_no_layer_tells_is_found_by_trying(kind: type[Recurrent]) -> None:
    model = kind().train()
    check_packable(model)
    with pytest.raises(GobrrrError, match=r"mix \(Identity\) computes document 1 otherwise"):
        check_packable(model, [[1, 2, 3], [4, 5]], PackingCollate(8))
    assert model.training and not any(module._forward_hooks for module in model.modules())
    check_packable(Bag(), [[1, 2, 3], [4, 5]], PackingCollate(8))
    with pytest.raises(GobrrrError, match="your program's PackingCollate"):
        check_packable(model, [[1]])
