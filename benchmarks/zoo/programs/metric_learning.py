"""Triplets with a miner, after pytorch-metric-learning's examples; the nearest neighbours are asked every 20 batches."""

import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(4608, 64),
)
distance = distances.CosineSimilarity()
loss_func = losses.TripletMarginLoss(margin=0.2, distance=distance, reducer=reducers.ThresholdReducer(low=0))
mining_func = miners.TripletMarginMiner(margin=0.2, distance=distance, type_of_triplets="semihard")
optimizer = optim.Adam(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(128 * 60, 1, 28, 28), torch.randint(0, 10, (128 * 60,)))
for batch_idx, (images, labels) in enumerate(DataLoader(data, batch_size=128, shuffle=True)):
    optimizer.zero_grad()
    embeddings = model(images)
    indices_tuple = mining_func(embeddings, labels)
    loss = loss_func(embeddings, labels, indices_tuple)
    loss.backward()
    optimizer.step()
    if batch_idx % 20 == 0:
        print(f"Iteration {batch_idx}: mined {mining_func.num_triplets > 0}")
