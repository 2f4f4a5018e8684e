"""Sorts paragraphs of Python's standard library by the module that they are from, with transformers' Trainer: a data
set as its documentation shows it, tokenising as it goes, rows padded in the collate function."""

import re
import sys
import sysconfig
from collections import Counter
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

MODULES = (
    "argparse",
    "decimal",
    "difflib",
    "doctest",
    "pydoc",
    "subprocess",
    "tarfile",
    "threading",
    "typing",
    "zipfile",
)


def paragraphs():
    """Of skewed lengths: most have some ten words, a few have hundreds."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    for label, module in enumerate(MODULES):
        name = "_pydecimal" if module == "decimal" else module
        for text in re.split(r"\n\s*\n", (folder / f"{name}.py").read_text(encoding="utf-8")):
            if len(text) > 40:
                yield text, label


def tokenizer(texts):
    words = Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower()))
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(word for word, _ in words.most_common(8000))]
    plain = Tokenizer(models.WordPiece({word: n for n, word in enumerate(known)}, unk_token="[UNK]"))
    plain.normalizer = normalizers.BertNormalizer(lowercase=True)
    plain.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]")


class Paragraphs(Dataset):
    def __init__(self, rows, tokenizer):
        self.rows = rows
        self.tokenizer = tokenizer

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        text, label = self.rows[index]
        text = re.sub(r"https?://\S+", " url ", text)
        text = re.sub(r"\s+", " ", text).strip()
        encoded = self.tokenizer(text, truncation=True, max_length=256)
        return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"], "labels": label}


def main():
    set_seed(0)
    rows = list(paragraphs())
    tok = tokenizer([text for text, _ in rows])
    config = BertConfig(
        vocab_size=len(tok), hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512,
        num_labels=len(MODULES),
    )  # fmt: skip
    arguments = TrainingArguments(
        output_dir="out", per_device_train_batch_size=32, num_train_epochs=float(sys.argv[1]) if sys.argv[1:] else 2,
        learning_rate=5e-4, use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=50,
    )  # fmt: skip
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Paragraphs(rows, tok),
        data_collator=DataCollatorWithPadding(tok),
    )
    trainer.train()


if __name__ == "__main__":
    main()
