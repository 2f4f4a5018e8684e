import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import GPT2Config, GPT2LMHeadModel

STEPS = int(os.environ.get("STEPS", 400))
ACCUM = 4
VOCAB, SEQ = 6000, 16


class Snippets(Dataset):
    def __init__(self, n=3200):
        g = torch.Generator().manual_seed(17)
        start = torch.randint(0, VOCAB, (n, 1), generator=g)
        stride = torch.randint(1, 5, (n, 1), generator=g)
        self.ids = (start + stride * torch.arange(SEQ)) % VOCAB

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    config = GPT2Config(vocab_size=VOCAB, n_positions=SEQ, n_embd=320, n_layer=2, n_head=4,
                        bos_token_id=0, eos_token_id=0)
    model = DDP(GPT2LMHeadModel(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=20)
    data = Snippets()
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=2, sampler=sampler, drop_last=True)

    micro, epoch = 0, 0
    while micro < STEPS:
        sampler.set_epoch(epoch)
        for ids in loader:
            micro += 1
            last = micro % ACCUM == 0
            loss = model(input_ids=ids, labels=ids).loss / ACCUM
            loss.backward()
            if last:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if micro % 80 == 0 and rank == 0:
                print(f"micro {micro} loss {loss.item() * ACCUM:.3f}", flush=True)
            if micro >= STEPS:
                break
        epoch += 1
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
