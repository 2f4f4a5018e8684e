"""Supervised fine-tuning with trl's SFTTrainer and its defaults, which recompute the activations."""

import tempfile

from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer
from words import sentences, tokenizer

set_seed(0)
tok = tokenizer()
config = LlamaConfig(
    vocab_size=len(tok),
    hidden_size=192,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
    bos_token_id=2,
    eos_token_id=3,
    pad_token_id=0,
)
args = SFTConfig(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=8,
    max_steps=60,
    max_length=128,
    bf16=False,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = SFTTrainer(
    model=LlamaForCausalLM(config),
    args=args,
    processing_class=tok,
    train_dataset=Dataset.from_dict({"text": sentences(800, 30, 90)}),
)
trainer.train()
print("steps", trainer.state.global_step)
