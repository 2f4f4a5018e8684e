"""A small language model on padded rows, as people train it: tied weights, two groups of parameters, accumulation,
clipping, warm-up, random replacement of tokens, an average of the weights, evaluation, metrics, checkpoints."""

import copy

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

V, W, LONGEST, ACCUMULATE = 50, 32, 12, 2
torch.set_num_threads(1)


class Rows(Dataset):
    def __init__(self, num, seed, random=True):
        draw = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(1, V, (num, LONGEST), generator=draw)
        self.lengths = torch.randint(4, LONGEST + 1, (num,), generator=draw)
        self.noise = torch.rand(num, LONGEST, generator=draw) < 0.1
        self.random = random

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        row = self.tokens[i, : self.lengths[i]]
        labels = torch.where(self.noise[i, : self.lengths[i]], 1, (row * 7 + 3) % V)
        return self.augmented(row) if self.random else row, labels

    def augmented(self, row):
        return torch.where(torch.rand(row.shape) < 0.1, torch.randint(1, V, row.shape), row)


def collate(samples):
    pad = torch.nn.utils.rnn.pad_sequence
    return pad([x for x, _ in samples], True), pad([y for _, y in samples], True, padding_value=-100)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(V, W, padding_idx=0)
        torch.nn.init.normal_(self.embedding.weight, std=0.1)
        self.qkv, self.out = torch.nn.Linear(W, 3 * W), torch.nn.Linear(W, W)
        self.norm, self.batch_norm = torch.nn.LayerNorm(W), torch.nn.BatchNorm1d(W)
        self.up, self.down, self.gate = torch.nn.Linear(W, 4 * W), torch.nn.Linear(4 * W, W), torch.nn.Linear(W, 1)
        self.dropout = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(W, V, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        h = self.embedding(x)
        q, k, v = self.qkv(h).chunk(3, -1)
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        h = self.norm(h + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=causal & (x != 0)[:, None])))
        z = self.dropout(self.down(F.gelu(self.up(h)))) * torch.sigmoid(self.gate(h))
        return self.head(self.batch_norm((h + z).transpose(1, 2)).transpose(1, 2))


def loss_of(logits, labels):
    return F.cross_entropy(logits.reshape(-1, V), labels.reshape(-1), ignore_index=-100, label_smoothing=0.1)


@torch.no_grad()
def renew(average, model):
    for old, new in zip(average.parameters(), model.parameters(), strict=True):
        old.mul_(0.9).add_(new, alpha=0.1)


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        losses = [loss_of(model(x), y).item() for x, y in loader]
    model.train()
    return sum(losses) / len(losses)


def main(updates=64):
    torch.manual_seed(0)
    model = Net()
    average = copy.deepcopy(model)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], 2e-3
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1, (t + 1) / 5) * 0.97**t)
    loader = DataLoader(Rows(122, 5), batch_size=16, shuffle=True, collate_fn=collate)
    held_out = DataLoader(Rows(32, 6, random=False), batch_size=16, collate_fn=collate)
    update = 0
    while update < updates:
        for i, (x, y) in enumerate(loader):
            loss = loss_of(model(x), y) / ACCUMULATE
            loss.backward()
            if i % ACCUMULATE != ACCUMULATE - 1:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            renew(average, model)
            update += 1
            print(f"update {update} loss {loss.item() * ACCUMULATE:.4f}", flush=True)
            if update % 4 == 0:
                print(f"held out {evaluate(model, held_out):.4f}, average {evaluate(average, held_out):.4f}")
                torch.save({"model": model.state_dict(), "average": average.state_dict()}, "checkpoint.pt")


if __name__ == "__main__":
    main()
