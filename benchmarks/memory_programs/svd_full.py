# limit: data 2.2GiB | holder: variables,other tensors | first: all_singular_vectors
import torch

x = torch.randn(20_000, 32)
for _ in range(2):
    # fix[all_singular_vectors]: u, s, v = torch.linalg.svd(x, full_matrices=False)
    u, s, v = torch.linalg.svd(x)  # dies, unless: all_singular_vectors
    x = x - 0.1 * u[:, :1] * s[0] @ v[:1]
print(s[0])
