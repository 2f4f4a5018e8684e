"""PyTorch Geometric's examples/gcn.py on a graph drawn by itself: every epoch trains, then tests on all nodes."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

torch.manual_seed(0)
NODES, EDGES = 4000, 40000
data = Data(
    x=torch.randn(NODES, 256),
    edge_index=torch.randint(0, NODES, (2, EDGES)),
    y=torch.randint(0, 7, (NODES,)),
    train_mask=torch.rand(NODES) < 0.1,
    test_mask=torch.rand(NODES) < 0.3,
)


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GCNConv(256, 64)
        self.conv2 = GCNConv(64, 7)

    def forward(self, x, edge_index):
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)


def train():
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    return float(loss)


@torch.no_grad()
def test():
    model.eval()
    pred = model(data.x, data.edge_index).argmax(dim=-1)
    masks = data.train_mask, data.test_mask
    return [int((pred[mask] == data.y[mask]).sum()) / int(mask.sum()) for mask in masks]


for epoch in range(1, 61):
    loss = train()
    accuracies = test()
    if epoch % 20 == 0:
        print(f"epoch {epoch:03d} loss {loss:.3f} train {accuracies[0]:.2f}")
