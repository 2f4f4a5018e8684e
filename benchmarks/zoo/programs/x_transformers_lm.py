"""x-transformers' examples/train_enwik8 in small: gradients of four batches, then an update."""

import torch
from torch.utils.data import DataLoader, Dataset
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

torch.manual_seed(0)
BATCH_SIZE, GRADIENT_ACCUMULATE_EVERY, SEQ_LEN = 4, 4, 128
model = AutoregressiveWrapper(
    TransformerWrapper(num_tokens=256, max_seq_len=SEQ_LEN + 1, attn_layers=Decoder(dim=128, depth=4, heads=4))
)
text = torch.randint(0, 256, (200000,))


class TextSamplerDataset(Dataset):
    def __len__(self):
        return 200000 // SEQ_LEN

    def __getitem__(self, index):
        start = torch.randint(0, 200000 - SEQ_LEN - 1, (1,))
        return text[start : start + SEQ_LEN + 1].long()


def cycle(loader):
    while True:
        yield from loader


train_loader = cycle(DataLoader(TextSamplerDataset(), batch_size=BATCH_SIZE))
optim = torch.optim.Adam(model.parameters(), lr=1e-4)
for i in range(70):
    model.train()
    for _ in range(GRADIENT_ACCUMULATE_EVERY):
        loss = model(next(train_loader))
        (loss / GRADIENT_ACCUMULATE_EVERY).backward()
    if i % 20 == 0:
        print(f"training loss: {loss.item():.3f}")
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optim.step()
    optim.zero_grad()
