# limit: data 1.5GiB | holder: variables,parameters,other tensors | first: dense_copy_of_a_sparse_tensor
import torch
from torch import nn

num = 20_000
edges = torch.randint(0, num, (2, 5 * num))
graph = torch.sparse_coo_tensor(edges, torch.ones(5 * num), (num, num)).coalesce()
layer, x = nn.Linear(32, 32), torch.randn(num, 32)
for _ in range(3):
    h = graph.to_dense() @ layer(x)  # dies, fix[dense_copy_of_a_sparse_tensor]: h = torch.sparse.mm(graph, layer(x))
    h.square().mean().backward()
