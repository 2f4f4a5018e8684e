# limit: data 2.0GiB | holder: activations,variables,other tensors | first: chunked_loss,micro_batch
import torch
from torch import nn

VOCABULARY = 50_000
embedding, body = nn.Embedding(VOCABULARY, 128), nn.Linear(128, 128)
head = nn.Linear(128, VOCABULARY, bias=False)
parameters = [*embedding.parameters(), *body.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
for _ in range(3):
    tokens = torch.randint(0, VOCABULARY, (16, 257))
    hidden = body(embedding(tokens[:, :-1])).flatten(0, 1)
    target = tokens[:, 1:].flatten()
    # fix[chunked_loss]: pieces = zip(hidden.chunk(16), target.chunk(16))
    # fix[chunked_loss]: parts = [torch.utils.checkpoint.checkpoint(lambda h, t: nn.functional.cross_entropy(head(h), t, reduction="sum"), h, t, use_reentrant=False) for h, t in pieces]
    # fix[chunked_loss]: loss = sum(parts) / len(target)
    # fix[micro_batch]: loss = nn.functional.cross_entropy(head(hidden[:256]), target[:256])
    logits = head(hidden)  # dies, unless: chunked_loss, micro_batch
    loss = nn.functional.cross_entropy(logits, target)  # dies, unless: chunked_loss, micro_batch
    optimizer.zero_grad()
    loss.backward()  # dies
    optimizer.step()
