"""Causal language modelling with the Trainer, after the transformers documentation (tasks/language_modeling)."""

import tempfile

from datasets import Dataset
from transformers import (
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    set_seed,
)
from words import sentences, tokenizer

set_seed(0)
BLOCK = 128
tok = tokenizer()
raw = Dataset.from_dict({"text": sentences(6000)})
tokenized = raw.map(lambda rows: tok(rows["text"]), batched=True, remove_columns=["text"])


def group_texts(examples):
    joined = sum(examples["input_ids"], [])
    whole = len(joined) // BLOCK * BLOCK
    blocks = [joined[i : i + BLOCK] for i in range(0, whole, BLOCK)]
    return {"input_ids": blocks, "attention_mask": [[1] * BLOCK for _ in blocks]}


blocks = tokenized.map(group_texts, batched=True, remove_columns=tokenized.column_names)
config = GPT2Config(vocab_size=len(tok), n_positions=BLOCK, n_embd=192, n_layer=4, n_head=4)
args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=8,
    max_steps=60,
    learning_rate=2e-5,
    weight_decay=0.01,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(
    model=GPT2LMHeadModel(config),
    args=args,
    train_dataset=blocks,
    data_collator=DataCollatorForLanguageModeling(tokenizer=tok, mlm=False),
)
trainer.train()
print("steps", trainer.state.global_step)
