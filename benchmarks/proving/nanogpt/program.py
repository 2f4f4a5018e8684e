"""
Train a small GPT on characters, in one file.
    python program.py              # the whole run
    python program.py --steps 20   # a look
"""

import math
import os
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
# I/O
out_dir = "out"
eval_interval = 250
log_interval = 10
eval_iters = 20
always_save_checkpoint = False
# data
gradient_accumulation_steps = 2
batch_size = 4
block_size = 96
# model
n_layer = 3
n_head = 4
n_embd = 96
dropout = 0.1
# adamw
learning_rate = 1e-3
max_iters = 6000
weight_decay = 1e-1
beta1 = 0.9
beta2 = 0.99
grad_clip = 1.0
# lr decay
warmup_iters = 100
lr_decay_iters = 6000
min_lr = 1e-4
# -----------------------------------------------------------------------------
if "--steps" in sys.argv:
    max_iters = int(sys.argv[sys.argv.index("--steps") + 1])
os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337)
np.random.seed(1337)


def make_text(n=400_000, vocab=65):
    # a walk over characters in which the last two decide what comes often
    rng = np.random.default_rng(1)
    table = rng.integers(0, vocab, size=(vocab, vocab, 4))
    picks = rng.integers(0, 4, size=n)
    noise = rng.random(n) < 0.1
    other = rng.integers(0, vocab, size=n)
    a, b = 0, 1
    out = np.empty(n, dtype=np.uint16)
    for i in range(n):
        c = other[i] if noise[i] else table[a, b, picks[i]]
        out[i] = c
        a, b = b, c
    return out


text = make_text()
vocab_size = 65
train_data = text[: int(0.9 * len(text))]
val_data = text[int(0.9 * len(text)) :]


def get_batch(split):
    data = train_data if split == "train" else val_data
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.tensor([int(t) for t in data[i : i + block_size]]) for i in ix])
    y = torch.stack([torch.tensor([int(t) for t in data[i + 1 : i + 1 + block_size]]) for i in ix])
    return x, y


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.query = nn.Linear(config.n_embd, config.n_embd)
        self.key = nn.Linear(config.n_embd, config.n_embd)
        self.value = nn.Linear(config.n_embd, config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.n_head = config.n_head
        self.n_embd = config.n_embd

    def forward(self, x):
        B, T, C = x.size()
        hs = C // self.n_head
        q, k, v = self.query(x), self.key(x), self.value(x)
        mask = torch.zeros(T, T, dtype=torch.bool)
        for i in range(T):
            mask[i, i + 1 :] = True
        heads = []
        for h in range(self.n_head):
            qh = q[:, :, h * hs : (h + 1) * hs]
            kh = k[:, :, h * hs : (h + 1) * hs]
            vh = v[:, :, h * hs : (h + 1) * hs]
            att = (qh @ kh.transpose(-2, -1)) / math.sqrt(hs)
            att = att.masked_fill(mask, float("-inf"))
            att = F.softmax(att, dim=-1)
            heads.append(att @ vh)
        y = torch.cat(heads, dim=-1)
        return self.resid_dropout(self.c_proj(y))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        x = self.c_fc(x)
        x = new_gelu(x)
        x = self.c_proj(x)
        return self.dropout(x)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


@dataclass
class GPTConfig:
    block_size: int = 96
    vocab_size: int = 65
    n_layer: int = 3
    n_head: int = 4
    n_embd: int = 96
    dropout: float = 0.0


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.drop = nn.Dropout(config.dropout)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx, targets):
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        logits = self.lm_head(x)
        logp = torch.log(F.softmax(logits, dim=-1))
        onehot = F.one_hot(targets, self.config.vocab_size).float()
        loss = -(onehot * logp).sum(-1).mean()
        return logits, loss


config = GPTConfig(block_size, vocab_size, n_layer, n_head, n_embd, dropout)
model = GPT(config)
print(f"number of parameters: {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M")
decay = [p for p in model.parameters() if p.dim() >= 2]
nodecay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": weight_decay}, {"params": nodecay, "weight_decay": 0.0}],
    lr=learning_rate,
    betas=(beta1, beta2),
)


def estimate_loss():
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            logits, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    decay_ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
    return min_lr + coeff * (learning_rate - min_lr)


def save(iter_num, best_val_loss):
    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "iter_num": iter_num,
        "best_val_loss": best_val_loss,
    }
    torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))


# training loop
X, Y = get_batch("train")
t0 = time.time()
best_val_loss = 1e9
for iter_num in range(max_iters):
    lr = get_lr(iter_num)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr

    if iter_num > 0 and iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if losses["val"] < best_val_loss or always_save_checkpoint:
            best_val_loss = losses["val"]
            save(iter_num, best_val_loss)

    optimizer.zero_grad(set_to_none=False)
    for micro_step in range(gradient_accumulation_steps):
        logits, loss = model(X, Y)
        loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")
        loss.backward()
    total_norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
    clip_coef = grad_clip / (total_norm.item() + 1e-6)
    if clip_coef < 1:
        for p in model.parameters():
            p.grad.mul_(clip_coef)
    optimizer.step()

    t1 = time.time()
    dt = t1 - t0
    t0 = t1
    lossf = loss.item() * gradient_accumulation_steps
    if iter_num % log_interval == 0:
        print(f"iter {iter_num}: loss {lossf:.4f}, time {dt * 1000:.2f}ms", flush=True)

losses = estimate_loss()
print(f"final: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
save(max_iters, losses["val"])
