"""LoRA on a small Llama with peft, after its quicktour; every example is padded to the longest allowed."""

import torch
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from words import sentences, tokenizer

set_seed(0)
tok = tokenizer()
encoded = tok(sentences(240, 10, 40), padding="max_length", truncation=True, max_length=128, return_tensors="pt")
rows = [
    {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
    for ids, mask in zip(encoded["input_ids"], encoded["attention_mask"])
]
config = LlamaConfig(
    vocab_size=len(tok), hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4
)
peft_config = LoraConfig(task_type=TaskType.CAUSAL_LM, r=8, lora_alpha=32, lora_dropout=0.1)
model = get_peft_model(LlamaForCausalLM(config), peft_config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(rows, batch_size=4, shuffle=True)
for epoch in range(1):
    model.train()
    for step, batch in enumerate(loader):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 25 == 0:
            print(f"step {step}: {loss.item():.3f}")
