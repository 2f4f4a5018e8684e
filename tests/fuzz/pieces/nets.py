"""Nets from [8, 16] floats to [8, 4] scores, called `model`."""

from tests.fuzz.grammar import piece

piece(
    "net",
    "mlp",
    net="""
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4))
""",
)
piece("net", "small mlp", net="model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))")
piece(
    "net",
    "convolutions",
    net="""
model = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(16, 4))
""",
)
piece(
    "net",
    "recurrent",
    net="""
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        out, (h, c) = self.lstm(x.view(-1, 4, 4))
        return self.head(h[0])


model = Recurrent()
""",
)
piece(
    "net",
    "attention",
    net="""
model = nn.Sequential(
    nn.Unflatten(1, (4, 4)), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True), nn.Flatten(),
    nn.Linear(16, 4),
)
""",
)
piece(
    "net",
    "tied and buffered",
    net="""
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)
        self.b.weight = self.a.weight
        self.head = nn.Linear(16, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))


model = Tied()
""",
)
piece(
    "net",
    "checkpointed",
    net="""
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.2), nn.Tanh())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=len(losses) % 2 == 0) if x.requires_grad
                         else checkpoint(self.body, x, use_reentrant=False))


model = Checkpointed()
""",
)
piece(
    "net",
    "custom function",
    net="""
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        ctx.kept = x.sum().item()
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad * weight, (grad * x).sum(0)


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(Scaled.apply(x, self.weight))


model = Custom()
""",
)
piece(
    "net",
    "complex numbers",
    net="""
class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(9, 4, dtype=torch.complex64))

    def forward(self, x):
        return (torch.fft.rfft(x) @ self.weight).abs()


model = Complex()
""",
)
piece(
    "net",
    "parametrized",
    net="""
model = nn.Sequential(
    nn.utils.parametrizations.weight_norm(nn.Linear(16, 16)), nn.ReLU(),
    nn.utils.parametrizations.spectral_norm(nn.Linear(16, 4)),
)
""",
)
piece(
    "net",
    "lazy",
    net="""
model = nn.Sequential(nn.LazyLinear(12), nn.ReLU(), nn.LazyLinear(4))
model(torch.ones(2, 16))
""",
)
piece(
    "net",
    "jit.script",
    net="""
class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        for i in range(2):
            x = torch.relu(self.a(x))
        return self.b(x)


model = torch.jit.script(Scripted())
""",
)
piece(
    "net",
    "jit.trace",
    net="""
model = torch.jit.trace(nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)), torch.ones(8, 16))
""",
)
piece(
    "net",
    "fx",
    net="""
import torch.fx

model = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)))
say(model.code)
""",
)
piece(
    "net",
    "fake quantized",
    net="""
class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.fake_quantize_per_tensor_affine(torch.relu(self.a(x)), 0.02, 0, 0, 255)
        return self.b(h)


model = Quantized()
""",
)
piece(
    "net",
    "hooked",
    net="""
calls = []
model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
model[0].register_forward_pre_hook(lambda m, args: calls.append("pre"))
model[2].register_forward_hook(lambda m, args, out: out * 1.5)
model[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))
model[0].weight.register_hook(lambda g: g.clamp(-1, 1))
model[0].weight.register_post_accumulate_grad_hook(lambda p: calls.append("grad"))
""",
    end="say(len(calls), digest(calls))",
)
piece(
    "net",
    "own __call__",
    net="""
class Called(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 4)
        self.count = 0

    def __call__(self, *args, **kwargs):
        self.count += 1
        return super().__call__(*args, **kwargs)

    def __getattr__(self, name):
        if name == "phantom":
            return len(self.__dict__)
        return super().__getattr__(name)

    def forward(self, x, *, gain=1.0, **rest):
        return self.inner(x) * gain


model = Called()
""",
    end="say(model.count, model.phantom, hasattr(model, 'absent'))",
)
piece(
    "net",
    "stochastic depth",
    net="""
class Stochastic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for layer in self.layers:
            if random.random() < 0.7 or np.random.rand() < 0.2:
                x = x + F.rrelu(layer(x), training=True)
        return self.head(x)


model = Stochastic()
""",
)
piece(
    "net",
    "float64",
    net="""
class Double(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 8), nn.ELU(inplace=True), nn.Linear(8, 4)).double()

    def forward(self, x):
        return self.net(x.double()).float()


model = Double()
""",
)
piece(
    "net",
    "embedding",
    net="""
class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(32, 8, mode="mean")
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.words((x.abs() * 10).long() % 32))


model = Embedded()
""",
)
piece(
    "net",
    "compile eager",
    weight=0.5,
    net="""
model = torch.compile(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)), backend="eager")
""",
)
piece(
    "net",
    "compile aot_eager",
    weight=0.5,
    net="""
model = torch.compile(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)), backend="aot_eager")
""",
)
piece(
    "net",
    "compile inductor",
    weight=0.1,
    net="""
model = torch.compile(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)))
""",
)
