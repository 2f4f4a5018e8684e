"""Translation with the Seq2SeqTrainer, after the transformers documentation (tasks/translation), evaluated often."""

import tempfile

from datasets import Dataset
from transformers import (
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)
from words import sentences, tokenizer

set_seed(0)
tok = tokenizer()
config = T5Config(
    vocab_size=len(tok),
    d_model=128,
    d_kv=32,
    d_ff=512,
    num_layers=3,
    num_heads=4,
    decoder_start_token_id=0,
    pad_token_id=0,
    eos_token_id=3,
)
model = T5ForConditionalGeneration(config)


def preprocess(examples):
    return tok(examples["source"], text_target=examples["target"], max_length=64, truncation=True)


def pairs(number, seed):
    return Dataset.from_dict({"source": sentences(number, seed=seed), "target": sentences(number, seed=seed + 1)})


train = pairs(1000, 0).map(preprocess, batched=True, remove_columns=["source", "target"])
test = pairs(128, 7).map(preprocess, batched=True, remove_columns=["source", "target"])
args = Seq2SeqTrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    max_steps=60,
    eval_strategy="steps",
    eval_steps=10,
    predict_with_generate=True,
    generation_max_length=40,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)


def compute_metrics(predicted):
    """The length of what was generated, as the summarization example of the documentation has it beside ROUGE."""
    return {"gen_len": float((predicted.predictions > 0).sum(axis=1).mean())}


trainer = Seq2SeqTrainer(
    model=model,
    args=args,
    train_dataset=train,
    eval_dataset=test,
    processing_class=tok,
    data_collator=DataCollatorForSeq2Seq(tokenizer=tok, model=model),
    compute_metrics=compute_metrics,
)
trainer.train()
print("steps", trainer.state.global_step)
