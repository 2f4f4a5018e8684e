"""Transcribes made-up speech with a small Whisper and generate(), after the transformers documentation."""

import numpy as np
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration, set_seed

set_seed(0)
config = WhisperConfig(
    vocab_size=4000,
    d_model=128,
    encoder_layers=3,
    decoder_layers=3,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=512,
    decoder_ffn_dim=512,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    suppress_tokens=None,
    begin_suppress_tokens=None,
)
model = WhisperForConditionalGeneration(config).eval()
model.generation_config.suppress_tokens = model.generation_config.begin_suppress_tokens = None
processor = WhisperFeatureExtractor()
draw = np.random.default_rng(0)
clips = [draw.normal(size=16000 * 3).astype(np.float32) for _ in range(10)]
tokens = 0
for clip in clips:
    features = processor(clip, sampling_rate=16000, return_tensors="pt").input_features
    with torch.no_grad():
        predicted = model.generate(input_features=features, max_new_tokens=30, min_new_tokens=30, do_sample=False)
    tokens += predicted.numel()
print("tokens", tokens)
