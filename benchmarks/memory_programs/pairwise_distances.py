# limit: data 2.0GiB | holder: variables,other tensors | first: pairs_of_all_rows
import torch

points = torch.randn(3000, 64)
centres = torch.randn(3000, 64)
for _ in range(3):
    # fix[pairs_of_all_rows]: distances = torch.cdist(points, centres)
    distances = (points[:, None] - centres[None]).square().sum(-1).sqrt()  # dies, unless: pairs_of_all_rows
    centres = centres + 0.01 * points[distances.argmin(0)]
print(distances.mean())
