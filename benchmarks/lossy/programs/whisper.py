"""Note error rate of a small Whisper that writes down melodies of generated tones."""

import math

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

RATE, NOTES, SECONDS = 8000, 6, 0.12
PAD, BOS, EOS, VOCAB = 12, 13, 14, 16
FRAMES = 96


def whisper_config():
    return WhisperConfig(
        vocab_size=VOCAB, num_mel_bins=80, d_model=256, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, max_source_positions=FRAMES // 2,
        max_target_positions=16, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS,
        begin_suppress_tokens=None, dropout=0.0, init_std=0.06,
    )  # fmt: skip


def melodies(count, noise):
    """Waveforms with their notes, an octave from middle A on."""
    notes = torch.randint(12, (count, NOTES))
    time = torch.arange(int(RATE * SECONDS)) / RATE
    pitch = 440 * 2 ** (notes / 12)
    tones = torch.sin(2 * math.pi * pitch[..., None] * time) * torch.exp(-8 * time)
    return tones.flatten(1) + noise * torch.randn(count, NOTES * len(time)), notes


def log_spectrogram(audio):
    window = torch.hann_window(512)
    power = torch.stft(audio, 512, hop_length=60, window=window, return_complex=True).abs() ** 2
    bands = power[:, 20:100, :FRAMES]
    return ((bands + 1e-3).log10() + 1) / 2


def transcribe(model, features):
    tokens = torch.full((len(features), 1), BOS)
    encoded = model.get_encoder()(features)
    for _ in range(NOTES):
        logits = model(encoder_outputs=encoded, decoder_input_ids=tokens).logits
        tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return tokens[:, 1:]


@torch.inference_mode()
def main(batches=12, batch_size=16, noise=1.7):
    torch.manual_seed(3)
    model = WhisperForConditionalGeneration.from_pretrained("whisper")
    model.eval()
    errors = total = 0
    for _ in range(batches):
        audio, notes = melodies(batch_size, noise)
        heard = transcribe(model, log_spectrogram(audio))
        errors += (heard != notes).sum().item()
        total += notes.numel()
    print("note error rate: %.2f%% of %d notes" % (100 * errors / total, total))


if __name__ == "__main__":
    import sys

    main(*map(int, sys.argv[1:]))
