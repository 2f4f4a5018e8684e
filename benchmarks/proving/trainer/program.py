"""Fine-tune a small BERT on support tickets with the transformers Trainer."""

import argparse
import os
import random

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

LABELS = ["billing", "shipping", "refund", "login", "praise", "other"]
MAX_LENGTH = 64
torch.autograd.set_detect_anomaly(True)  # there was a NaN once


def make_tickets(n, seed):
    """Write n tickets: words of their topic among words of no topic."""
    rng = random.Random(seed)
    common = [f"word{i}" for i in range(600)]
    topical = {label: [f"{label}{i}" for i in range(40)] for label in LABELS}
    tickets = []
    for _ in range(n):
        label = rng.choice(LABELS)
        length = rng.randint(20, 90)
        words = [rng.choice(topical[label]) if rng.random() < 0.12 else rng.choice(common) for _ in range(length)]
        tickets.append((" ".join(words).capitalize() + ".", LABELS.index(label)))
    return tickets


class Vocab:
    def __init__(self, texts):
        words = sorted({w for t in texts for w in self.split(t)})
        self.words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]

    @staticmethod
    def split(text):
        out = ""
        for ch in text.lower():
            out += ch if ch.isalnum() else " "
        return [w for w in out.split(" ") if w != ""]

    def encode(self, text):
        ids = [2]
        for w in self.split(text)[: MAX_LENGTH - 2]:
            ids.append(self.words.index(w) if w in self.words else 1)
        ids.append(3)
        return ids


class TicketDataset(Dataset):
    def __init__(self, tickets, vocab):
        self.tickets = tickets
        self.vocab = vocab

    def __len__(self):
        return len(self.tickets)

    def __getitem__(self, i):
        text, label = self.tickets[i]
        ids = self.vocab.encode(text)
        pad = MAX_LENGTH - len(ids)
        return {
            "input_ids": torch.tensor(ids + [0] * pad),
            "attention_mask": torch.tensor([1] * len(ids) + [0] * pad),
            "labels": torch.tensor(label),
        }


def compute_metrics(pred):
    logits, labels = pred.predictions, pred.label_ids
    matrix = np.zeros((len(LABELS), len(LABELS)))
    for row, label in zip(logits, labels):
        best = 0
        for j in range(len(row)):
            if row[j] > row[best]:
                best = j
        matrix[label][best] += 1
    f1 = []
    for c in range(len(LABELS)):
        tp = matrix[c][c]
        f1.append(2 * tp / max(matrix[c].sum() + matrix[:, c].sum(), 1))
    return {"accuracy": matrix.trace() / matrix.sum(), "f1": float(np.mean(f1))}


class EmaCallback(TrainerCallback):
    """Keep a running mean of the weights, saved at the end."""

    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    def on_step_end(self, args, state, control, model=None, **kwargs):
        for name, p in model.named_parameters():
            new = self.decay * self.shadow[name] + (1.0 - self.decay) * p.detach()
            self.shadow[name] = new.clone()

    def on_train_end(self, args, state, control, **kwargs):
        torch.save(self.shadow, os.path.join(args.output_dir, "ema.pt"))


class WeightedTrainer(Trainer):
    """Weigh the classes by how rare they are."""

    def __init__(self, *args, class_counts, **kwargs):
        super().__init__(*args, **kwargs)
        self.class_counts = class_counts

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        total = sum(self.class_counts)
        weights = torch.tensor([total / (len(LABELS) * c) for c in self.class_counts])
        loss = 0.0
        norm = 0.0
        for i in range(len(labels)):
            logp = torch.log_softmax(outputs.logits[i], dim=-1)
            loss = loss - weights[labels[i]] * logp[labels[i]]
            norm = norm + weights[labels[i]]
        loss = loss / norm
        return (loss, outputs) if return_outputs else loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=-1)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()

    set_seed(42)
    train = make_tickets(2040, seed=1)
    test = make_tickets(300, seed=2)
    vocab = Vocab([t for t, _ in train])
    counts = np.bincount([label for _, label in train], minlength=len(LABELS)).tolist()
    config = BertConfig(
        vocab_size=len(vocab.words),
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=128,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.0,
        num_labels=len(LABELS),
        attn_implementation="eager",
    )
    model = BertForSequenceClassification(config)
    training_args = TrainingArguments(
        output_dir=args.out,
        max_steps=args.steps,
        num_train_epochs=40,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        learning_rate=5e-4,
        weight_decay=0.01,
        max_grad_norm=1.0,
        warmup_steps=50,
        optim="adamw_torch",
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="steps",
        save_steps=200,
        save_total_limit=1,
        report_to=[],
        use_cpu=True,
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        seed=42,
    )
    trainer = WeightedTrainer(
        model=model,
        args=training_args,
        train_dataset=TicketDataset(train, vocab),
        eval_dataset=TicketDataset(test, vocab),
        compute_metrics=compute_metrics,
        callbacks=[EmaCallback(model)],
        class_counts=counts,
    )
    trainer.train()
    print(trainer.evaluate())
    trainer.save_model(os.path.join(args.out, "final"))


if __name__ == "__main__":
    main()
