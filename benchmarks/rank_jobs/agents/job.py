import gc
import os
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = int(os.environ.get("STEPS", 450))
OBS, ACTIONS, BATCH = 12, 5, 256


class Transition:
    __slots__ = ("slot", "action", "reward", "info")

    def __init__(self, slot, action, reward):
        self.slot = slot
        self.action = action
        self.reward = reward
        self.info = [slot, reward]


class Replay:
    def __init__(self, capacity, rng):
        self.rng = rng
        self.obs = torch.randn(capacity, OBS)
        self.items = [Transition(i, rng.randrange(ACTIONS), rng.random()) for i in range(capacity)]

    def push(self, obs, action, reward):
        slot = self.rng.randrange(len(self.items))
        self.obs[slot] = obs
        self.items[slot] = Transition(slot, action, reward)

    def sample(self, n):
        picked = [self.items[self.rng.randrange(len(self.items))] for _ in range(n)]
        return (self.obs[[p.slot for p in picked]],
                torch.tensor([p.action for p in picked]),
                torch.tensor([p.reward for p in picked]))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    rng = random.Random(40 + rank)
    qnet = DDP(nn.Sequential(nn.Linear(OBS, 768), nn.ReLU(),
                             nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, ACTIONS)))
    opt = torch.optim.Adam(qnet.parameters(), lr=1e-3)

    gc.disable()
    replay = Replay(500_000, rng)
    dist.barrier()
    obs, episodes = torch.randn(OBS), 0
    for step in range(STEPS):
        with torch.no_grad():
            action = int(qnet.module(obs).argmax())
        replay.push(obs, action, rng.random())
        obs = 0.9 * obs + 0.1 * torch.randn(OBS)
        if rng.random() < 0.04:
            episodes += 1
            obs = torch.randn(OBS)
            gc.collect()

        states, actions, rewards = replay.sample(BATCH)
        q = qnet(states).gather(1, actions[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, rewards)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 75 == 0:
            print(f"rank {rank} step {step} episodes {episodes} loss {loss.item():.4f}", flush=True)

    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
