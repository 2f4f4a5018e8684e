"""accelerate's examples/nlp_example.py on made-up pairs of sentences: dynamic padding, a test after every epoch."""

import torch
from accelerate import Accelerator
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup, set_seed
from words import sentences, tokenizer

set_seed(0)
accelerator = Accelerator(cpu=True)
tok = tokenizer()
texts = sentences(640, 20, 60)
rows = [{**tok(text), "labels": len(text) % 2} for text in texts]


def collate_fn(examples):
    return tok.pad(examples, padding="longest", return_tensors="pt")


train_dataloader = DataLoader(rows, shuffle=True, collate_fn=collate_fn, batch_size=16, drop_last=True)
eval_dataloader = DataLoader(rows[:64], collate_fn=collate_fn, batch_size=32)
config = BertConfig(
    vocab_size=len(tok), hidden_size=192, num_hidden_layers=4, num_attention_heads=4, intermediate_size=768
)
model = BertForSequenceClassification(config)
optimizer = AdamW(params=model.parameters(), lr=2e-5)
scheduler = get_linear_schedule_with_warmup(optimizer, 10, 120)
model, optimizer, train_dataloader, eval_dataloader, scheduler = accelerator.prepare(
    model, optimizer, train_dataloader, eval_dataloader, scheduler
)
for epoch in range(2):
    model.train()
    for batch in train_dataloader:
        outputs = model(**batch)
        accelerator.backward(outputs.loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    model.eval()
    right = 0
    for batch in eval_dataloader:
        with torch.no_grad():
            outputs = model(**batch)
        predictions, references = accelerator.gather_for_metrics((outputs.logits.argmax(dim=-1), batch["labels"]))
        right += int((predictions == references).sum())
    accelerator.print(f"epoch {epoch}: {right} of 64")
