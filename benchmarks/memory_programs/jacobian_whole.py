# limit: data 1.5GiB | holder: frozen parameters,parameters,variables,other tensors,activations | first: whole_Jacobian
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 4096), nn.Tanh(), nn.Linear(4096, 4096), nn.Tanh(), nn.Linear(4096, 4096))
net.requires_grad_(False)
x = torch.randn(16, 64)
# fix[whole_Jacobian]: each = torch.func.jacrev(net, chunk_size=64)
# fix[whole_Jacobian]: rows = torch.stack([each(row) for row in x])
rows = torch.func.vmap(torch.func.jacrev(net))(x)  # dies, unless: whole_Jacobian
print(rows.shape)
