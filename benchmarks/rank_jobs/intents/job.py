import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = int(os.environ.get("STEPS", 370))
EVAL_EVERY = 40
VOCAB, SEQ, CLASSES = 2000, 24, 10


def make_split(n, seed):
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCAB, (n, SEQ), generator=g)
    return TensorDataset(tokens, tokens[:, 0] % CLASSES)


class Classifier(nn.Module):
    def __init__(self, d=96):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Parameter(torch.zeros(SEQ, d))
        layer = nn.TransformerEncoderLayer(d, 4, 192, dropout=0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(d, CLASSES)

    def forward(self, tokens):
        h = self.enc(self.tok(tokens) + self.pos)
        return self.out(h.mean(1))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = seen = 0
    for tokens, label in loader:
        right += (model(tokens).argmax(-1) == label).sum().item()
        seen += len(label)
    model.train()
    return right / seen


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    model = DDP(Classifier())
    optim = torch.optim.AdamW(model.parameters(), lr=5e-4)
    criterion = nn.CrossEntropyLoss()
    train = make_split(4096, 1)
    valid = make_split(1024, 2)
    sampler = DistributedSampler(train, shuffle=True, seed=4)
    loader = DataLoader(train, batch_size=16, sampler=sampler, drop_last=True)
    valid_loader = DataLoader(valid, batch_size=64)

    step, epoch = 0, 0
    while step < STEPS:
        sampler.set_epoch(epoch)
        for tokens, label in loader:
            loss = criterion(model(tokens), label)
            optim.zero_grad()
            loss.backward()
            optim.step()
            step += 1
            if step % EVAL_EVERY == 0 and rank == 0:
                acc = evaluate(model.module, valid_loader)
                print(f"step {step} loss {loss.item():.3f} acc {acc:.3f}", flush=True)
            if step == STEPS:
                break
        epoch += 1
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
