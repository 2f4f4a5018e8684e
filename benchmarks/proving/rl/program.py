"""Actor and critic on CartPole: collect with eight environments, one update, again."""

import argparse
import os
import random
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=8000, help="updates")
parser.add_argument("--num-envs", type=int, default=8)
parser.add_argument("--horizon", type=int, default=24)
parser.add_argument("--gamma", type=float, default=0.99)
parser.add_argument("--lam", type=float, default=0.95)
parser.add_argument("--lr", type=float, default=7e-4)
parser.add_argument("--ent-coef", type=float, default=0.01)
parser.add_argument("--vf-coef", type=float, default=0.5)
parser.add_argument("--max-grad-norm", type=float, default=0.5)
parser.add_argument("--eval-every", type=int, default=100)
parser.add_argument("--eval-episodes", type=int, default=4)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--out", default="out")
args = parser.parse_args()

os.makedirs(args.out, exist_ok=True)
random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
dice = np.random.default_rng(args.seed)


class Agent(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden=128):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, n_actions)
        )
        self.critic = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def forward(self, obs):
        return self.actor(obs), self.critic(obs).squeeze(-1)


envs = [gym.make("CartPole-v1") for _ in range(args.num_envs)]
agent = Agent(envs[0].observation_space.shape[0], envs[0].action_space.n)
params = list(agent.parameters())
square_avg = [torch.zeros_like(p) for p in params]


def rmsprop_step(lr, alpha=0.99, eps=1e-5):
    # as the paper has it: eps inside the root
    with torch.no_grad():
        for p, s in zip(params, square_avg):
            s.copy_(alpha * s + (1 - alpha) * p.grad * p.grad)
            p.copy_(p - lr * p.grad / torch.sqrt(s + eps))


def act(obs):
    logits, value = agent(torch.tensor(obs, dtype=torch.float32).unsqueeze(0))
    probs = torch.softmax(logits, dim=-1)
    action = 0 if dice.random() < probs[0, 0].item() else 1
    return action, value.item()


def evaluate():
    env = gym.make("CartPole-v1")
    total = 0.0
    for episode in range(args.eval_episodes):
        obs, _ = env.reset(seed=1000 + episode)
        done = False
        while not done:
            logits, _ = agent(torch.tensor(obs, dtype=torch.float32).unsqueeze(0))
            obs, reward, terminated, truncated, _ = env.step(logits.argmax(-1).item())
            total += reward
            done = terminated or truncated
    env.close()
    return total / args.eval_episodes


observations = [env.reset(seed=args.seed + i)[0] for i, env in enumerate(envs)]
returns = [0.0] * args.num_envs
recent = deque(maxlen=50)

for update in range(args.steps):
    obs_buf = []
    act_buf = []
    rew_buf = torch.zeros(args.horizon, args.num_envs)
    done_buf = torch.zeros(args.horizon, args.num_envs)
    val_buf = torch.zeros(args.horizon + 1, args.num_envs)
    for t in range(args.horizon):
        for i, env in enumerate(envs):
            action, value = act(observations[i])
            obs_buf.append(torch.tensor(observations[i], dtype=torch.float32))
            act_buf.append(action)
            obs, reward, terminated, truncated, _ = env.step(action)
            val_buf[t, i] = value
            rew_buf[t, i] = reward
            returns[i] += reward
            if terminated or truncated:
                done_buf[t, i] = 1.0
                recent.append(returns[i])
                returns[i] = 0.0
                obs, _ = env.reset()
            observations[i] = obs
    for i in range(args.num_envs):
        val_buf[args.horizon, i] = act(observations[i])[1]

    adv = torch.zeros(args.horizon, args.num_envs)
    for i in range(args.num_envs):
        last = 0.0
        for t in reversed(range(args.horizon)):
            alive = 1.0 - done_buf[t, i]
            delta = rew_buf[t, i] + args.gamma * val_buf[t + 1, i] * alive - val_buf[t, i]
            last = delta + args.gamma * args.lam * alive * last
            adv[t, i] = last
    target = (adv + val_buf[:-1]).flatten()
    adv = adv.flatten()
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)

    logits, value = agent(torch.stack(obs_buf))
    dist = torch.distributions.Categorical(logits=logits)
    policy_loss = -(dist.log_prob(torch.tensor(act_buf)) * adv).mean()
    value_loss = 0.5 * ((value - target) ** 2).mean()
    entropy = dist.entropy().mean()
    loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy

    agent.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, args.max_grad_norm)
    rmsprop_step(args.lr * (1 - update / max(args.steps, 8000)))

    if update % 10 == 0:
        mean = np.mean(recent) if recent else 0.0
        print(
            f"update {update} policy {policy_loss.item():.4f} value {value_loss.item():.4f} "
            f"entropy {entropy.item():.4f} return {mean:.1f}",
            flush=True,
        )
    if update > 0 and update % args.eval_every == 0:
        print(f"update {update} eval return {evaluate():.1f}", flush=True)
        torch.save(agent.state_dict(), os.path.join(args.out, "agent.pt"))

print(f"final eval return {evaluate():.1f}")
torch.save(agent.state_dict(), os.path.join(args.out, "agent.pt"))
