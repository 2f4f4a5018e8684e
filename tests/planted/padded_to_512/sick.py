"""Fine-tunes a small encoder on sentences of very different length."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

PADDING = 0


class Sentences(Dataset):
    """Token ids with a long tail of lengths; the label is whether a token occurs."""

    def __init__(self, num_sentences: int = 1200) -> None:
        generator = torch.Generator().manual_seed(0)
        lengths = torch.exp(torch.randn(num_sentences, generator=generator) * 0.4 + 4.9).clamp(8, 512).long().tolist()
        self.tokens = [torch.randint(1, 100_000, (length,), generator=generator) for length in lengths]
        self.tokens.sort(key=len)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tokens[index]


def collate(sentences: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    length = 512
    tokens = torch.stack([F.pad(s, (0, length - len(s)), value=PADDING) for s in sentences])  # <- BRR409
    return tokens, (tokens % 100 == 7).any(dim=1).long()


class EncoderClassifier(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        vectors = torch.randn(100_000, width)  # stands for word vectors from a file
        vectors = vectors / vectors.norm(dim=1, keepdim=True)
        self.tokens = nn.Embedding.from_pretrained(vectors, freeze=True, padding_idx=PADDING)
        self.qkv = nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        query, key, value = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        x = x + F.scaled_dot_product_attention(query, key, value).squeeze(1)
        return self.head(self.mlp(x).mean(dim=1))  # <- BRR409


class Epochs:
    """Yields batches for ever: neighbours in length together, batches in random order."""

    def __init__(self, batch_size: int) -> None:
        dataset = Sentences()
        starts = range(0, len(dataset), batch_size)
        self.batches = [list(range(start, min(start + batch_size, len(dataset)))) for start in starts]
        self.dataset = dataset

    def __iter__(self):
        while True:
            order = torch.randperm(len(self.batches)).tolist()
            batches = [self.batches[k] for k in order]
            yield from DataLoader(self.dataset, batch_sampler=batches, collate_fn=collate)  # <- BRR409


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = EncoderClassifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (tokens, labels) in zip(range(args.steps), Epochs(batch_size=24)):
        loss = F.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 45 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
