import math
import sysconfig
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn


class CharLSTM(nn.Module):
    """A language model of characters."""

    def __init__(self, vocab=128, emb=128, hidden=512, layers=1):
        super().__init__()
        self.encoder = nn.Embedding(vocab, emb)
        self.rnn = nn.LSTM(emb, hidden, layers, batch_first=True)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        out, state = self.rnn(self.encoder(x), state)
        return self.decoder(out), state


def read_text(folder, pattern="*.py"):
    text = "".join(p.read_text(encoding="utf-8", errors="ignore") for p in sorted(Path(folder).glob(pattern)))
    return np.frombuffer(text.encode("ascii", "ignore"), dtype=np.uint8)


def split():
    text = read_text(Path(sysconfig.get_path("stdlib")) / "email")
    cut = int(len(text) * 0.85)
    return text[:cut], text[cut:]


def batches(text, count, batch, bptt):
    for _ in range(count):
        at = np.random.randint(0, len(text) - bptt - 1, batch)
        rows = torch.from_numpy(np.stack([text[i : i + bptt + 1] for i in at]).astype(np.int64))
        yield rows[:, :-1], rows[:, 1:]


def bits_per_char(model, text, count, batch=32, bptt=64):
    criterion = nn.CrossEntropyLoss()
    total = 0.0
    model.eval()
    with torch.no_grad():
        for x, y in batches(text, count, batch, bptt):
            logits, _ = model(x)
            total += criterion(logits.reshape(-1, logits.size(-1)), y.reshape(-1)).item()
    return total / count / math.log(2)


if __name__ == "__main__":
    import sys

    np.random.seed(11)
    model = CharLSTM()
    model.load_state_dict(torch.load("lstm.pt"))
    _, test = split()
    bpc = bits_per_char(model, test, count=int(sys.argv[1]) if len(sys.argv) > 1 else 30)
    print("| end of evaluation | test bpc %8.4f |" % bpc)
