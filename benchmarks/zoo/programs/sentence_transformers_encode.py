"""Embeds documents one by one with sentence-transformers, as many scripts do."""

import tempfile

import numpy as np
from sentence_transformers import SentenceTransformer, models
from transformers import BertConfig, BertModel, set_seed
from words import sentences, tokenizer

set_seed(0)
tok = tokenizer()
folder = tempfile.mkdtemp()
config = BertConfig(
    vocab_size=len(tok), hidden_size=256, num_hidden_layers=6, num_attention_heads=4, intermediate_size=1024
)
BertModel(config).save_pretrained(folder)
tok.save_pretrained(folder)
model = SentenceTransformer(modules=[models.Transformer(folder, max_seq_length=128), models.Pooling(256)], device="cpu")
documents = sentences(250)
found = np.stack([model.encode(document) for document in documents])
print(found.shape)
