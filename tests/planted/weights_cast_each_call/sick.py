"""Serves a feed-forward model whose weights are stored in half the bytes."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class CompactLinear(nn.Module):
    """A linear layer that keeps its weight in bfloat16 and computes in float32."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        weight = torch.randn(width_out, width_in) / width_in**0.5
        self.register_buffer("weight", weight.bfloat16())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.float())  # <- BRR205


class Server:
    def __init__(self, width: int = 1024, depth: int = 12) -> None:
        self.model = nn.Sequential(*(CompactLinear(width, width) for _ in range(depth))).eval()
        self.served = 0

    @torch.inference_mode()
    def answer(self, request: torch.Tensor) -> torch.Tensor:
        self.served += len(request)
        return self.model(request)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    torch.manual_seed(0)
    server = Server()
    for step in range(args.steps):
        reply = server.answer(torch.randn(4, 1024))
        if step % 100 == 0:
            print(f"served {server.served:4d}  mean reply {reply.mean().item():+.4f}")


if __name__ == "__main__":
    main()
