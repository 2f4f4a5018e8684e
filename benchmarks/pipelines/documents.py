"""Trains a small GPT-2 on the docstrings of Python's standard library: each is tokenised as it is drawn, cut to 128
tokens, and padded in the collate function."""

import ast
import re
import sys
import sysconfig
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

CUT = 128


def docstrings():
    """Short documents: the median has some thirty words."""
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                yield text


def tokenizer(texts):
    plain = Tokenizer(models.BPE(unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=4000, special_tokens=["<pad>", "<unk>", "<end>"]))
    return plain


class Documents(Dataset):
    def __init__(self, texts, tokenizer):
        self.texts = texts
        self.tokenizer = tokenizer

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        text = self.texts[index].replace("\t", "    ")
        text = re.sub(r"^\s*>>> .*$", "", text, flags=re.MULTILINE)  # examples are code
        text = re.sub(r"[ ]{2,}", " ", re.sub(r"\n{3,}", "\n\n", text)).strip()
        ids = self.tokenizer.encode(text).ids[: CUT - 1]
        return torch.tensor([*ids, 2])


def collate(rows):
    ids = pad_sequence(rows, batch_first=True)
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def main():
    torch.manual_seed(0)
    texts = list(docstrings())
    tok = tokenizer(texts)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=tok.get_vocab_size(), n_positions=CUT, n_embd=64, n_layer=2, n_head=2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Documents(texts, tok), batch_size=16, shuffle=True, collate_fn=collate)
    for epoch in range(int(sys.argv[1]) if sys.argv[1:] else 1):
        for step, batch in enumerate(loader):
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 200 == 0:
                print(f"epoch {epoch} step {step}: {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
