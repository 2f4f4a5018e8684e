"""Sorts messages by their topic; each is cleaned, cut into words and numbered before training."""

import argparse
import random
import re

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

WORD = re.compile(r"[a-z]+|\d+|[^\sa-z\d]")
LENGTH = 128
SYLLABLES = ["ba", "do", "ki", "lu", "me", "ra", "si", "to", "ve", "zu"]


def messages(number: int) -> list[tuple[str, int]]:
    draw = random.Random(0)
    words = ["".join(draw.choices(SYLLABLES, k=3)) for _ in range(2000)]
    found = []
    for _ in range(number):
        topic = draw.randrange(4)
        text = " ".join(draw.choices(words[500 * topic : 500 * topic + 800], k=draw.randint(600, 620)))
        found.append((f"On {draw.randint(1, 28)}/11, see https://example.org/{topic}: {text.title()}!", topic))
    return found


class Messages(Dataset):
    def __init__(self, rows: list[tuple[str, int]]) -> None:
        self.rows = rows
        self.numbers = {word: n for n, word in enumerate(sorted({w for text, _ in rows for w in words_of(text)}), 1)}
        self.ids = [torch.tensor([self.numbers[word] for word in words_of(text)][:LENGTH]) for text, _ in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.ids[index], self.rows[index][1]


def words_of(text: str) -> list[str]:
    text = re.sub(r"https?://\S+", " ", text.lower())
    return [word for word in WORD.findall(text) if len(word) > 1 or word.isdigit()]


def padded(rows: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    return pad_sequence([ids for ids, _ in rows], batch_first=True), torch.tensor([topic for _, topic in rows])


class Reader(nn.Module):
    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(num_words, 64, padding_idx=0)
        self.topics = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.topics(self.words(ids).mean(1))


def forever(loader: DataLoader):
    while True:
        yield from loader


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = Messages(messages(640))
    loader = DataLoader(data, batch_size=32, shuffle=True, collate_fn=padded)
    model = Reader(len(data.numbers) + 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (ids, topics) in zip(range(args.steps), forever(loader)):
        loss = nn.functional.cross_entropy(model(ids), topics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
