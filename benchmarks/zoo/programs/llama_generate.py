"""Answers prompts one after the other with a small Llama and generate(), as the transformers documentation shows it."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from words import sentences, tokenizer

set_seed(0)
tok = tokenizer()
config = LlamaConfig(
    vocab_size=len(tok),
    hidden_size=512,
    intermediate_size=1536,
    num_hidden_layers=8,
    num_attention_heads=8,
    bos_token_id=2,
    eos_token_id=None,
    pad_token_id=0,
)
model = LlamaForCausalLM(config).eval()
prompts = sentences(16, 20, 20)
answers = []
for prompt in prompts:
    inputs = tok(prompt, return_tensors="pt")
    with torch.no_grad():
        output = model.generate(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=24, do_sample=False
        )
    answers.append(tok.decode(output[0]))
print(len(answers), sum(len(answer.split()) for answer in answers))
