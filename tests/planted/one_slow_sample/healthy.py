"""Language identification on documents, a few of which are very long."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

READ = 400  # characters of a document that the model looks at


def trigram_counts(text: str, buckets: int = 2048) -> torch.Tensor:
    counts = [0.0] * buckets
    for start in range(len(text) - 2):
        counts[hash(text[start : start + 3]) % buckets] += 1
    return torch.tensor(counts)


class Documents(Dataset):
    def __init__(self, num_documents: int = 2000) -> None:
        languages = ("the of and to in is", "der die und in zu den", "de la que el en y")
        self.texts = [(languages[k % 3] + " ") * 20 for k in range(num_documents)]
        for k in range(0, num_documents, 100):
            self.texts[k] *= 1000  # whole books

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return trigram_counts(self.texts[index][:READ]), index % 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Documents(), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Linear(2048, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = 0
    while step < args.steps:
        for counts, languages in loader:
            loss = nn.functional.cross_entropy(model(counts), languages)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
