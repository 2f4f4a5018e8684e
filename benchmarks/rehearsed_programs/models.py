"""Small configurations of transformers' models, and a GPT as people write it by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import nn
from torch.nn import functional as F

VOCABULARY, LENGTH = 8192, 128
Step = Callable[[], float]


def bert(remedy: str) -> tuple[nn.Module, Callable[[], Any]]:
    config = hf.BertConfig(vocab_size=VOCABULARY, hidden_size=256, num_hidden_layers=2, num_attention_heads=4,
                           intermediate_size=1024)  # fmt: skip
    config._attn_implementation = _attention(remedy)
    return _language_model(hf.BertForMaskedLM(config), remedy, 4)


def gpt2(remedy: str) -> tuple[nn.Module, Callable[[], Any]]:
    config = hf.GPT2Config(vocab_size=16384, n_positions=256, n_embd=256, n_layer=2, n_head=4)
    config._attn_implementation = _attention(remedy)
    return _language_model(hf.GPT2LMHeadModel(config), remedy, 2, 256, 16384)


def llama(remedy: str) -> tuple[nn.Module, Callable[[], Any]]:
    config = hf.LlamaConfig(vocab_size=VOCABULARY, hidden_size=256, intermediate_size=688, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=256)  # fmt: skip
    config._attn_implementation = _attention(remedy)
    return _language_model(hf.LlamaForCausalLM(config), remedy, 4)


def vit(remedy: str) -> tuple[nn.Module, Callable[[], Any]]:
    config = hf.ViTConfig(hidden_size=192, num_hidden_layers=3, num_attention_heads=3, intermediate_size=768,
                          image_size=128, patch_size=8, num_labels=100)  # fmt: skip
    config._attn_implementation = _attention(remedy)
    return _classifier(hf.ViTForImageClassification(config), remedy, 4, 128)


def resnet(remedy: str) -> tuple[nn.Module, Callable[[], Any]]:
    config = hf.ResNetConfig(embedding_size=32, hidden_sizes=[64, 128, 256, 512], depths=[1, 1, 1, 1],
                             layer_type="basic", num_labels=100)  # fmt: skip
    return _classifier(hf.ResNetForImageClassification(config), remedy, 6, 96)


def convnext(remedy: str) -> tuple[nn.Module, Callable[[], Any]]:
    config = hf.ConvNextConfig(hidden_sizes=[48, 96, 192, 384], depths=[1, 1, 2, 1], num_labels=100)
    return _classifier(hf.ConvNextForImageClassification(config), remedy, 4, 96)


def nanogpt(remedy: str) -> tuple[nn.Module, Callable[[], Any]]:
    model = HandMade(fused=remedy == "sdpa_attention")
    return model, lambda: model(torch.randint(0, VOCABULARY, (2, 257)))


def double_mlp(remedy: str) -> tuple[nn.Module, Callable[[], Any]]:
    dtype = torch.float32 if remedy == "float32" else torch.float64
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 64))
    model.to(dtype)
    return model, lambda: F.mse_loss(model(torch.rand(256, 256, dtype=dtype)), torch.rand(256, 64, dtype=dtype))


class HandMade(nn.Module):
    """Attention, block and loss as in many a repository; mask as a buffer."""

    def __init__(self, fused: bool, size: int = 256, heads: int = 4, layers: int = 2, length: int = 256) -> None:
        super().__init__()
        self.fused, self.heads = fused, heads
        self.tokens, self.places = nn.Embedding(VOCABULARY, size), nn.Embedding(length, size)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"ln1": nn.LayerNorm(size), "qkv": nn.Linear(size, 3 * size), "out": nn.Linear(size, size),
                           "ln2": nn.LayerNorm(size), "up": nn.Linear(size, 4 * size),
                           "down": nn.Linear(4 * size, size)})
            for _ in range(layers)
        )  # fmt: skip
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, VOCABULARY, bias=False)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids[:, :-1]) + self.places.weight[: ids.shape[1] - 1]
        for block in self.blocks:
            x = x + block["out"](self.attend(block["qkv"](block["ln1"](x))))
            x = x + block["down"](F.gelu(block["up"](block["ln2"](x))))
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))

    def attend(self, qkv: torch.Tensor) -> torch.Tensor:
        batch, length, _ = qkv.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in qkv.chunk(3, -1))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
            scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
            y = F.softmax(scores, dim=-1) @ v
        return y.transpose(1, 2).reshape(batch, length, -1)


def _attention(remedy: str) -> str:
    return "sdpa" if remedy == "sdpa_attention" else "eager"


def _language_model(
    model: Any, remedy: str, batch: int, length: int = LENGTH, vocabulary: int = VOCABULARY
) -> tuple[nn.Module, Callable[[], Any]]:
    def plain() -> Any:
        ids = torch.randint(0, vocabulary, (batch, length))
        return model(input_ids=ids, labels=ids).loss

    def chunked() -> Any:
        ids = torch.randint(0, vocabulary, (batch, length))
        hidden = model.transformer(input_ids=ids).last_hidden_state[:, :-1].reshape(-1, model.config.hidden_size)
        options = torch.nn.LinearCrossEntropyOptions()
        return F.linear_cross_entropy(hidden, model.lm_head.weight, ids[:, 1:].reshape(-1), options=options)

    return model, chunked if remedy == "chunked_loss" else plain


def _classifier(model: Any, remedy: str, batch: int, side: int) -> tuple[nn.Module, Callable[[], Any]]:
    layout = torch.channels_last if remedy == "channels_last" else torch.contiguous_format
    model.to(memory_format=layout)

    def loss() -> Any:
        images = torch.rand(batch, 3, side, side).contiguous(memory_format=layout)
        return model(pixel_values=images, labels=torch.randint(0, 100, (batch,))).loss

    return model, loss


PROGRAMS = {"bert": bert, "gpt2": gpt2, "llama": llama, "vit": vit, "resnet": resnet, "convnext": convnext,
            "nanogpt": nanogpt, "double_mlp": double_mlp}  # fmt: skip


def step_of(name: str, remedy: str = "") -> Step:
    """One training step of a program; with a remedy as a person would write it."""
    torch.manual_seed(0)
    model, loss_of = PROGRAMS[name](remedy)
    how = {"fused": {"fused": True}, "foreach": {"foreach": True}}.get(remedy.removesuffix("_optimizer"), {})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **how)
    context = {
        "bf16_autocast": lambda: torch.autocast("cpu", torch.bfloat16),
        "float16_autocast": lambda: torch.autocast("cpu", torch.float16),
    }.get(remedy, contextlib.nullcontext)

    def step() -> float:
        with context():
            loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return 0.0

    return step
