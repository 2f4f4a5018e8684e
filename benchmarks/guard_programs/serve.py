"""A small language model that answers requests: a prompt and some tokens more, with a cache of keys and values."""

import torch
import torch.nn.functional as F

V, W, LENGTH, NEW = 64, 32, 10, 4
torch.set_num_threads(1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(V, W)
        self.qkv, self.out, self.norm = torch.nn.Linear(W, 3 * W), torch.nn.Linear(W, W), torch.nn.LayerNorm(W)
        self.up, self.down, self.head = torch.nn.Linear(W, 4 * W), torch.nn.Linear(4 * W, W), torch.nn.Linear(W, V)

    def forward(self, x, keys=None, values=None):
        h = self.embedding(x)
        q, k, v = self.qkv(h).chunk(3, -1)
        if keys is not None:
            k, v = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        h = self.norm(h + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=keys is None)))
        return self.head(h + self.down(F.gelu(self.up(h)))), k, v


@torch.no_grad()
def main(requests=60):
    torch.manual_seed(0)
    model = Net().eval()
    draw = torch.Generator().manual_seed(1)
    for number in range(requests):
        x = torch.randint(V, (8, LENGTH), generator=draw)
        logits, keys, values = model(x)
        said = []
        for _ in range(NEW):
            x = logits[:, -1:].argmax(-1)
            said.append(x)
            logits, keys, values = model(x, keys, values)
        print(f"request {number}: {torch.cat(said, 1)[0].tolist()}", flush=True)


if __name__ == "__main__":
    main()
