"""PPO on CartPole, the first example of stable-baselines3."""

import gymnasium as gym
from stable_baselines3 import PPO

env = gym.make("CartPole-v1")
model = PPO("MlpPolicy", env, seed=0, device="cpu", verbose=0)
model.learn(total_timesteps=6_000)
print("timesteps", model.num_timesteps)
