"""Policy gradient for a warehouse robot; every rank plays against its own simulator, weights are averaged now and then."""
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn

MAX_STEPS = int(os.environ.get("MAX_STEPS", "600"))
AVERAGE_EVERY, EVAL_EVERY, SAVE_EVERY = 8, 100, 300
ROBOTS, SENSORS, MOVES = 16, 24, 6


class Simulator:
    """Stand-in for the remote physics server: a request takes a fixed time."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.goal = torch.randn(SENSORS, MOVES, generator=torch.Generator().manual_seed(1))
        self.state = torch.randn(ROBOTS, SENSORS, generator=self.g)

    def play(self, moves):
        time.sleep(0.004)
        reward = (self.state @ self.goal).gather(1, moves[:, None]).squeeze(1)
        self.state = torch.randn(ROBOTS, SENSORS, generator=self.g)
        return reward


def rollout(policy, simulator, length=6):
    logps, rewards = [], []
    for _ in range(length):
        d = torch.distributions.Categorical(logits=policy(simulator.state))
        moves = d.sample()
        logps.append(d.log_prob(moves))
        rewards.append(simulator.play(moves))
    return torch.stack(logps), torch.stack(rewards)


@torch.no_grad()
def average(policy):
    flat = torch.cat([p.flatten() for p in policy.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, new in zip(policy.parameters(), flat.split([p.numel() for p in policy.parameters()])):
        p.copy_(new.view_as(p))


@torch.no_grad()
def evaluate(policy, simulator, games=10):
    total = torch.zeros(1)
    for _ in range(games):
        total += simulator.play(policy(simulator.state).argmax(1)).mean()
    dist.all_reduce(total)
    return total.item() / games / dist.get_world_size()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(60)
    policy = nn.Sequential(nn.Linear(SENSORS, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, MOVES))
    torch.manual_seed(100 + rank)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    simulator = Simulator(rank)
    with tempfile.TemporaryDirectory() as root:
        begin = time.time()
        for step in range(1, MAX_STEPS + 1):
            logps, rewards = rollout(policy, simulator)
            loss = -(logps * (rewards - rewards.mean())).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % AVERAGE_EVERY == 0:
                average(policy)
            if step % EVAL_EVERY == 0:
                score = evaluate(policy, simulator)
                if rank == 0:
                    print(f"step {step} score {score:.2f}", flush=True)
            if step % SAVE_EVERY == 0:
                dist.barrier()
                if rank == 0:
                    torch.save(policy.state_dict(), pathlib.Path(root) / f"policy-{step}.pt")
                dist.barrier()
        if rank == 0:
            print(f"{MAX_STEPS} steps, {1000 * (time.time() - begin) / MAX_STEPS:.1f} ms each", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
