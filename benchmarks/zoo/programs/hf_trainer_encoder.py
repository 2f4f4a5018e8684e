"""Text classification with the Trainer, after the transformers documentation (tasks/sequence_classification)."""

import tempfile

from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
from words import sentences, tokenizer

set_seed(0)
tok = tokenizer()
texts = sentences(640)
data = Dataset.from_dict({"text": texts, "label": [len(text) % 2 for text in texts]})


def tokenize(examples):
    return tok(examples["text"], padding="max_length", truncation=True, max_length=256)


tokenized = data.map(tokenize, batched=True)
config = BertConfig(
    vocab_size=len(tok), hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512
)
model = BertForSequenceClassification(config)
args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=8,
    num_train_epochs=1,
    learning_rate=2e-5,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model=model, args=args, train_dataset=tokenized, processing_class=tok)
trainer.train()
print("steps", trainer.state.global_step)
