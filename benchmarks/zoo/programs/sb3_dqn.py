"""DQN on CartPole after the stable-baselines3 documentation: an update after every four steps of the simulator."""

import gymnasium as gym
from stable_baselines3 import DQN

env = gym.make("CartPole-v1")
model = DQN("MlpPolicy", env, seed=0, device="cpu", verbose=0, learning_starts=500)
model.learn(total_timesteps=6_000)
print("timesteps", model.num_timesteps)
