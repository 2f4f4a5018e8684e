"""Intent classifier for support tickets, fine-tuned with the Hugging Face Trainer."""
import os
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import (BertConfig, BertForSequenceClassification, Trainer,
                          TrainerCallback, TrainingArguments, set_seed)

MAX_STEPS = int(os.environ.get("MAX_STEPS", "460"))
VOCAB, SEQ, CLASSES = 2500, 48, 12
WATCH_EVERY = 1


class Tickets(Dataset):
    def __init__(self, n=4096):
        g = torch.Generator().manual_seed(3)
        self.ids = torch.randint(5, VOCAB, (n, SEQ), generator=g)
        self.labels = self.ids[:, :4].sum(1) % CLASSES

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i],
                "attention_mask": torch.ones(SEQ, dtype=torch.long),
                "labels": self.labels[i]}


class GradWatch:
    """Keeps the distribution of every gradient, for the run report."""

    QUANTILES = torch.tensor([0.01, 0.25, 0.5, 0.75, 0.99])

    def __init__(self, model, every=1):
        self.every = every
        self.calls = {}
        self.table = {}
        for name, p in model.named_parameters():
            if p.requires_grad:
                p.register_hook(self._make(name))

    def _make(self, name):
        def record(grad):
            seen = self.calls.get(name, 0)
            self.calls[name] = seen + 1
            if seen % self.every:
                return
            flat = grad.detach().flatten()[::2]
            self.table[name] = (torch.quantile(flat, self.QUANTILES),
                                torch.histc(flat, bins=64))
        return record


class Clock(TrainerCallback):
    def on_train_begin(self, args, state, control, **kw):
        self.t = time.time()

    def on_train_end(self, args, state, control, **kw):
        if state.is_world_process_zero:
            took = time.time() - self.t
            print(f"{state.global_step} steps, {1000 * took / state.global_step:.1f} ms each", flush=True)


def main():
    torch.set_num_threads(1)
    set_seed(11)
    cfg = BertConfig(vocab_size=VOCAB, hidden_size=128, num_hidden_layers=2,
                     num_attention_heads=4, intermediate_size=512,
                     max_position_embeddings=SEQ, num_labels=CLASSES)
    model = BertForSequenceClassification(cfg)
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(output_dir=out, max_steps=MAX_STEPS, use_cpu=True,
                                 per_device_train_batch_size=4, learning_rate=3e-4,
                                 ddp_backend="gloo", report_to=[], save_strategy="no",
                                 logging_steps=100, disable_tqdm=True,
                                 ddp_find_unused_parameters=False)
        trainer = Trainer(model=model, args=args, train_dataset=Tickets(), callbacks=[Clock()])
        watch = None
        if trainer.is_world_process_zero():
            watch = GradWatch(model, every=WATCH_EVERY)
        trainer.train()
        if watch is not None:
            name, (q, _) = next(iter(watch.table.items()))
            print("report:", len(watch.table), "tensors;", name, [round(v, 6) for v in q.tolist()])
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
