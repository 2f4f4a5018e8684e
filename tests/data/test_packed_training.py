"""The proof: a document in a packed row has the loss that it has alone, and all of them together the same gradients."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from gobrrr.data import (
    PackedDataset,
    PackingCollate,
    check_packable,
    document_losses,
    global_labels,
    pack,
    token_loss,
)
from gobrrr.errors import GobrrrError

LENGTHS = [5, 17, 9, 30, 1, 2, 12, 25, 8, 21, 3]
CAPACITY, WORDS, BOUND = 32, 90, 1e-5
Forward = Callable[[nn.Module, dict[str, Tensor]], Tensor]


class Small(nn.Module):
    """A transformer written by hand: learned positions, attention through torch's own function."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 32), nn.Embedding(64, 32)
        self.layers = nn.ModuleList(nn.ModuleList([nn.Linear(32, 96), nn.Linear(32, 32)]) for _ in range(2))
        self.head = nn.Linear(32, WORDS)

    def forward(self, input_ids: Tensor, position_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.words(input_ids) + self.places(position_ids)
        for make, end in self.layers:  # type: ignore[misc]
            heads = make(F.layer_norm(hidden, (32,))).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(*heads, attn_mask=attention_mask)
            hidden = hidden + end(seen.transpose(1, 2).flatten(-2)).relu()
        return self.head(hidden)  # type: ignore[no-any-return]


def gpt2(attention: str = "sdpa") -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.2}
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = transformers.GPT2Config(vocab_size=WORDS, **sizes, **none, attn_implementation=attention)
    return transformers.GPT2LMHeadModel(config)  # type: ignore[no-any-return]


def llama(attention: str = "sdpa") -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(**small(), attn_implementation=attention)
    return transformers.LlamaForCausalLM(config)  # type: ignore[no-any-return]


def bert(attention: str = "sdpa") -> nn.Module:
    transformers = pytest.importorskip("transformers")
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(**small(), **none, attn_implementation=attention)
    return transformers.BertForMaskedLM(config)  # type: ignore[no-any-return]


def small() -> dict[str, float]:
    """Weights wide enough that attention decides what comes out."""
    return {
        "initializer_range": 0.2,
        "vocab_size": WORDS,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    }


MODELS = {"by hand": (Small, True), "gpt2": (gpt2, True), "llama": (llama, True), "bert": (bert, False)}


def samples(causal: bool) -> list[dict[str, Tensor]]:
    draw = torch.Generator().manual_seed(0)
    found = []
    for length in LENGTHS:
        ids = torch.randint(5, WORDS, (length,), generator=draw)
        sample = {"input_ids": ids}
        if not causal:  # half of the tokens are to be predicted, as a masked language model's
            hidden = torch.rand(length, generator=draw) < 0.5
            sample = {"input_ids": ids.masked_fill(hidden, 4), "labels": ids.masked_fill(~hidden, -100)}
        found.append(sample)
    return found


def logits(model: nn.Module, **inputs: Tensor) -> Tensor:
    output = model(**inputs)
    return output if isinstance(output, Tensor) else output.logits  # type: ignore[no-any-return]


def through(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return logits(model, **{name: batch[name] for name in ("input_ids", "position_ids", "attention_mask")})


def alone(model: nn.Module, sample: dict[str, Tensor], causal: bool) -> Tensor:
    """The loss of one sample without padding or packing: the sum over its tokens, with nothing of gobrrr in it."""
    ids = sample["input_ids"][None]
    length = ids.shape[1]
    if isinstance(model, Small):
        full = torch.ones(1, 1, length, length, dtype=torch.bool)
        found = model(ids, torch.arange(length)[None], full.tril() if causal else full)[0]
    else:
        found = logits(model, input_ids=ids)[0]
    labels = sample.get("labels", sample["input_ids"])
    found, labels = (found[:-1], labels[1:]) if causal else (found, labels)
    return F.cross_entropy(found, labels, ignore_index=-100, reduction="sum")


def gradients(model: nn.Module) -> Tensor:
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def batches(causal: bool, rows: int) -> list[dict[str, Tensor]]:
    packs = PackedDataset(samples(causal), pack(LENGTHS, CAPACITY))
    made, collate = [packs[at] for at in range(len(packs))], PackingCollate(CAPACITY, causal=causal)
    return [collate(made[at : at + rows]) for at in range(0, len(made), rows)]


def model_of(name: str) -> tuple[nn.Module, bool]:
    torch.manual_seed(0)
    make, causal = MODELS[name]
    return make().train(), causal


def wanted_gradients(model: nn.Module, causal: bool) -> Tensor:
    """Of the mean over all labels of all samples, each sample computed alone."""
    held = samples(causal)
    labels = sum(len(s["input_ids"]) - 1 if causal else int((s["labels"] != -100).sum()) for s in held)
    for sample in held:
        (alone(model, sample, causal) / labels).backward()
    return gradients(model)


@pytest.mark.parametrize("name", MODELS)
def test_each_document_has_the_loss_that_it_has_alone(name: str) -> None:
    model, causal = model_of(name)
    (batch,) = batches(causal, rows=99)
    order = [index for one in pack(LENGTHS, CAPACITY) for index in one]
    with torch.no_grad():
        found = document_losses(through(model, batch), batch["labels"], batch["document_ids"], causal)
        wanted = torch.stack([alone(model, samples(causal)[index], causal) for index in order])
    torch.testing.assert_close(found, wanted, rtol=BOUND, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_all_together_have_the_same_gradients(name: str) -> None:
    model, causal = model_of(name)
    wanted = wanted_gradients(model, causal)
    (batch,) = batches(causal, rows=99)
    token_loss(through(model, batch), batch["labels"], causal=causal).backward()
    assert error(gradients(model), wanted) <= BOUND


@pytest.mark.parametrize("name", MODELS)
def test_accumulation_has_the_same_gradients(name: str) -> None:
    model, causal = model_of(name)
    wanted = wanted_gradients(model, causal)
    micro = batches(causal, rows=1)
    total = global_labels(micro)
    for batch in micro:
        token_loss(through(model, batch), batch["labels"], total, causal).backward()
    assert error(gradients(model), wanted) <= BOUND
    for batch in micro:  # what is usually written, a mean of means, is another loss
        (token_loss(through(model, batch), batch["labels"], causal=causal) / len(micro)).backward()
    assert error(gradients(model), wanted) > 100 * BOUND


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_labels_are_those_that_transformers_shifts_itself(name: str) -> None:
    model, causal = model_of(name)
    wanted = wanted_gradients(model, causal)
    (batch,) = batches(causal, rows=99)
    inputs = {key: batch[key] for key in ("input_ids", "position_ids", "attention_mask", "labels")}
    model(**inputs).loss.backward()
    assert error(gradients(model), wanted) <= BOUND


@pytest.mark.parametrize("name", MODELS)
def test_each_part_of_the_packing_is_needed(name: str) -> None:
    """Without the mask, or without positions that restart, the losses are others."""
    model, causal = model_of(name)
    (batch,) = batches(causal, rows=99)
    square = torch.ones(CAPACITY, CAPACITY, dtype=torch.bool).expand_as(batch["attention_mask"])
    open_ = batch | {"attention_mask": square.tril() if causal else square}
    straight = batch | {"position_ids": torch.arange(CAPACITY).expand_as(batch["input_ids"])}
    with torch.no_grad():
        right, *wrong = (
            document_losses(through(model, one), one["labels"], one["document_ids"], causal)
            for one in (batch, open_, straight)
        )
    assert error(wrong[0], right) > 10 * BOUND
    if name != "llama":  # rotary positions are relative: within a document nothing changes
        assert error(wrong[1], right) > 10 * BOUND


@pytest.mark.parametrize("make", [gpt2, llama, bert])
def test_attention_that_would_add_the_mask_is_refused(make: Callable[[str], nn.Module]) -> None:
    torch.manual_seed(0)
    collate, documents = PackingCollate(CAPACITY, causal=make is not bert), [[5, 6, 7, 8], [9, 10, 11]]
    check_packable(make("sdpa"), documents, collate)
    with pytest.raises(GobrrrError, match=r"attn_implementation='sdpa'"):
        check_packable(make("eager"), documents, collate)


def test_a_state_space_model_is_refused() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.MambaConfig(vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(GobrrrError, match="is a convolution over positions"):
        check_packable(transformers.MambaForCausalLM(config))


def rank(number: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    model, causal = model_of("by hand")
    parallel = nn.parallel.DistributedDataParallel(model)
    all_, collate = samples(causal), PackingCollate(CAPACITY)
    packs = PackedDataset(all_, pack(LENGTHS, CAPACITY).split(LENGTHS, 2)[number])
    micro = [collate([packs[at]]) for at in range(len(packs))]
    total = global_labels(micro)
    for batch in micro:
        token_loss(through(parallel, batch), batch["labels"], total).backward()
    if number == 0:
        torch.save(gradients(model), f"{folder}/gradients")
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # threads of gloo now and then abort a process that ends by itself: nothing of what is tested here


def test_ranks_that_accumulate_have_the_same_gradients(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=rank, args=(number, str(tmp_path)), daemon=True) for number in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
    assert [process.exitcode for process in ranks] == [0, 0]
    assert error(torch.load(tmp_path / "gradients"), wanted_gradients(*model_of("by hand"))) <= BOUND
