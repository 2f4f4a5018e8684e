import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

STEPS = int(os.environ.get("STEPS", 400))
RATE, WORDS = 8000, 8


def resample(wave, factor, taps=511):
    t = np.arange(taps) - taps // 2
    kernel = np.sinc(t / factor) * np.hamming(taps) / factor
    return np.convolve(wave, kernel, mode="same")[::factor]


class Clips(Dataset):
    def __init__(self, n=3200):
        rng = np.random.default_rng(21)
        self.label = rng.integers(0, WORDS, n)
        self.hifi = rng.random(n) < 0.008
        self.n = n

    def load(self, i):
        rng = np.random.default_rng(i)
        if self.hifi[i]:
            return resample(rng.standard_normal(RATE * 48), 48)
        return rng.standard_normal(RATE)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        wave = self.load(i)
        wave = wave / np.abs(wave).max()
        return torch.from_numpy(wave.astype(np.float32))[None], int(self.label[i])


class WordNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 32, 40, stride=8), nn.ReLU(),
            nn.Conv1d(32, 64, 9, stride=2), nn.ReLU(),
            nn.Conv1d(64, 64, 9, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, WORDS))

    def forward(self, x):
        return self.net(x)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    clips = Clips()
    sampler = DistributedSampler(clips, shuffle=True, seed=13)
    loader = DataLoader(clips, batch_size=16, sampler=sampler, drop_last=True)
    model = DDP(WordNet())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()

    done, epoch = 0, 0
    while done < STEPS:
        sampler.set_epoch(epoch)
        for wave, word in loader:
            loss = loss_fn(model(wave), word)
            opt.zero_grad()
            loss.backward()
            opt.step()
            done += 1
            if done % 40 == 0:
                print(f"rank {rank} step {done} loss {loss.item():.3f}", flush=True)
            if done >= STEPS:
                break
        epoch += 1
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
