"""A sentence encoder trained on pairs, after the sentence-transformers documentation (training overview)."""

import tempfile

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    models,
)
from transformers import BertConfig, BertModel, set_seed
from words import sentences, tokenizer

set_seed(0)
tok = tokenizer()
folder = tempfile.mkdtemp()
config = BertConfig(
    vocab_size=len(tok), hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512
)
BertModel(config).save_pretrained(folder)
tok.save_pretrained(folder)
words = models.Transformer(folder, max_seq_length=128)
model = SentenceTransformer(modules=[words, models.Pooling(128)], device="cpu")
data = Dataset.from_dict({"anchor": sentences(1600, seed=1), "positive": sentences(1600, seed=2)})
args = SentenceTransformerTrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=16,
    max_steps=60,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = SentenceTransformerTrainer(
    model=model, args=args, train_dataset=data, loss=losses.MultipleNegativesRankingLoss(model)
)
trainer.train()
print("steps", trainer.state.global_step)
