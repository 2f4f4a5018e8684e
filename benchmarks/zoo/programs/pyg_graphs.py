"""Graph classification after PyTorch Geometric's examples/mutag_gin.py: many small graphs, batched as they come."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MLP, GINConv, global_add_pool

torch.manual_seed(0)
graphs = []
for number in range(3000):
    nodes = 10 + number % 20
    edges = torch.randint(0, nodes, (2, nodes * 3))
    graphs.append(Data(x=torch.randn(nodes, 16), edge_index=edges, y=torch.tensor([number % 2])))
train_loader = DataLoader(graphs, batch_size=128, shuffle=True)


class GIN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [16, 32, 32]
        self.convs = torch.nn.ModuleList(GINConv(MLP([size, 32, 32]), train_eps=False) for size in sizes)
        self.mlp = MLP([32, 32, 2], norm=None, dropout=0.5)

    def forward(self, x, edge_index, batch):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.mlp(global_add_pool(x, batch))


model = GIN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(5):
    model.train()
    total = 0.0
    for data in train_loader:
        optimizer.zero_grad()
        out = model(data.x, data.edge_index, data.batch)
        loss = F.cross_entropy(out, data.y)
        loss.backward()
        optimizer.step()
        total += float(loss) * data.num_graphs
    print(f"epoch {epoch} loss {total / len(graphs):.3f}")
