"""`batches(n)`: n pairs x, y; most by a `loader`."""

from tests.fuzz.grammar import piece

BATCHES = """
def batches(n):
    k = 0
    while True:
        for batch in loader:
            if k == n:
                return
            k += 1
            yield batch
"""
TENSORS = """
data = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
"""
NOISY = """
class Noisy(Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, index):
        return torch.randn(16) + random.random() + np.random.rand(), index % 4


data = Noisy()
"""
piece("data", "shuffled loader", data=TENSORS + "loader = DataLoader(data, batch_size=8, shuffle=True)\n" + BATCHES)
piece("data", "random items", data=NOISY + "loader = DataLoader(data, 8, shuffle=True, drop_last=True)\n" + BATCHES)
piece(
    "data",
    "one batch",
    data="""
batch = torch.randn(8, 16), torch.randint(0, 4, (8,))


def batches(n):
    return (batch for _ in range(n))
""",
)
piece(
    "data",
    "list of batches",
    data="""
def batches(n):
    return [(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(n)]
""",
)
piece(
    "data",
    "forked workers",
    weight=0.7,
    data=NOISY
    + """
loader = DataLoader(data, 8, num_workers=2, multiprocessing_context="fork")
"""
    + BATCHES,
)
piece(
    "data",
    "persistent workers",
    weight=0.7,
    data=NOISY
    + """
loader = DataLoader(data, 8, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=3,
                    worker_init_fn=lambda i: random.seed(i), generator=torch.Generator().manual_seed(3))
"""
    + BATCHES,
)
piece(
    "data",
    "spawned worker",
    weight=0.3,
    data=NOISY
    + """
loader = DataLoader(data, 8, num_workers=1, persistent_workers=True, multiprocessing_context="spawn")
"""
    + BATCHES,
)
piece(
    "data",
    "stream",
    data="""
class Stream(IterableDataset):
    def __iter__(self):
        for _ in range(100):
            yield torch.randn(16), random.randrange(4)


loader = DataLoader(Stream(), batch_size=8, drop_last=True)
"""
    + BATCHES,
)
piece(
    "data",
    "stream of a forked worker",
    weight=0.5,
    data="""
class Stream(IterableDataset):
    def __iter__(self):
        say_of = torch.utils.data.get_worker_info()
        for i in range(160):
            yield torch.randn(16) + say_of.id, i % 4


loader = DataLoader(Stream(), batch_size=8, num_workers=1)
"""
    + BATCHES,
)
piece(
    "data",
    "next of iter each step",
    data=TENSORS
    + """
loader = DataLoader(data, batch_size=8, shuffle=True)


def batches(n):
    for _ in range(n):
        yield next(iter(loader))
""",
)
piece(
    "data",
    "dataclass batches",
    data=TENSORS
    + """
import dataclasses


@dataclasses.dataclass(slots=True)
class Batch:
    x: torch.Tensor
    y: torch.Tensor

    def __iter__(self):
        return iter((self.x, self.y))


def collate(items):
    return Batch(torch.stack([x for x, _ in items]), torch.stack([y for _, y in items]))


loader = DataLoader(data, batch_size=8, collate_fn=collate)
"""
    + BATCHES,
)
piece(
    "data",
    "weighted sampler",
    data=TENSORS
    + """
from torch.utils.data import WeightedRandomSampler

loader = DataLoader(data, 8, sampler=WeightedRandomSampler([1.0, 2.0] * 32, 64))
"""
    + BATCHES,
)
piece(
    "data",
    "loader in a loader",
    data=TENSORS
    + """
class Outer(Dataset):
    inner = DataLoader(data, batch_size=1, shuffle=True)

    def __len__(self):
        return 32

    def __getitem__(self, index):
        x, y = next(iter(self.inner))
        return x[0], y[0]


loader = DataLoader(Outer(), batch_size=8)
"""
    + BATCHES,
)
piece("data", "pinned loader", data=TENSORS + "loader = DataLoader(data, 8, pin_memory=True)\n" + BATCHES)
piece(
    "data",
    "tensor subclass",
    data="""
class Named(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.seen.append(getattr(function, "__name__", "?"))
        return super().__torch_function__(function, types, args, kwargs or {})


def batches(n):
    for _ in range(n):
        yield torch.randn(8, 16).as_subclass(Named), torch.randint(0, 4, (8,))
""",
    end="say(len(Named.seen), digest(Named.seen))",
)
