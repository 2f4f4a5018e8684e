"""Transcribing generated tones to their melody with a small Whisper."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import WhisperConfig, WhisperForConditionalGeneration

FRAMES, BINS, NOTES = 400, 80, 16


class Melodies(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        notes = torch.randint(0, 40, (NOTES,), generator=generator)
        spectrum = 0.3 * torch.randn(BINS, FRAMES, generator=generator)
        for place, note in enumerate(notes.tolist()):
            spectrum[20 + note, place * FRAMES // NOTES : (place + 1) * FRAMES // NOTES] += 3
        return spectrum, notes + 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=51865, num_mel_bins=BINS, d_model=256, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, max_source_positions=FRAMES // 2,
        max_target_positions=64, decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Melodies(), batch_size=4, shuffle=True)
    step = 0
    while step < args.steps:
        for spectra, notes in loader:
            loss = model(input_features=spectra, labels=notes).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
            step += 1
            if step == args.steps:
                return


if __name__ == "__main__":
    main()
