"""Nets from [8, 16] floats to [8, 4] scores, called `model`; `batches(n)`, n pairs (x, y); `optimizer`; one step, which
makes `loss` of x, y; the loop, which runs {body} with k, x, y; and how a program ends."""

from tests.fuzz.grammar import piece

# nets

piece("net", "mlp", net="""
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4))
""")
piece("net", "small mlp", net="model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))")
piece("net", "convolutions", net="""
model = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(16, 4))
""")
piece("net", "recurrent", net="""
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        out, (h, c) = self.lstm(x.view(-1, 4, 4))
        return self.head(h[0])


model = Recurrent()
""")
piece("net", "attention", net="""
model = nn.Sequential(
    nn.Unflatten(1, (4, 4)), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True), nn.Flatten(),
    nn.Linear(16, 4),
)
""")
piece("net", "tied and buffered", net="""
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
""")
piece("net", "checkpointed", net="""
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
""")
piece("net", "custom function", net="""
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
""")
piece("net", "complex numbers", net="""
class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(9, 4, dtype=torch.complex64))

    def forward(self, x):
        return (torch.fft.rfft(x) @ self.weight).abs()


model = Complex()
""")
piece("net", "parametrized", net="""
model = nn.Sequential(
    nn.utils.parametrizations.weight_norm(nn.Linear(16, 16)), nn.ReLU(),
    nn.utils.parametrizations.spectral_norm(nn.Linear(16, 4)),
)
""")
piece("net", "lazy", net="""
model = nn.Sequential(nn.LazyLinear(12), nn.ReLU(), nn.LazyLinear(4))
model(torch.ones(2, 16))
""")
piece("net", "jit.script", net="""
class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        for i in range(2):
            x = torch.relu(self.a(x))
        return self.b(x)


model = torch.jit.script(Scripted())
""")
piece("net", "jit.trace", net="""
model = torch.jit.trace(nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)), torch.ones(8, 16))
""")
piece("net", "fx", net="""
import torch.fx

model = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)))
say(model.code)
""")
piece("net", "fake quantized", net="""
class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.fake_quantize_per_tensor_affine(torch.relu(self.a(x)), 0.02, 0, 0, 255)
        return self.b(h)


model = Quantized()
""")
piece("net", "hooked", net="""
calls = []
model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
model[0].register_forward_pre_hook(lambda m, args: calls.append("pre"))
model[2].register_forward_hook(lambda m, args, out: out * 1.5)
model[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))
model[0].weight.register_hook(lambda g: g.clamp(-1, 1))
model[0].weight.register_post_accumulate_grad_hook(lambda p: calls.append("grad"))
""", end="say(len(calls), digest(calls))")
piece("net", "own __call__", net="""
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
""", end="say(model.count, model.phantom, hasattr(model, 'absent'))")
piece("net", "stochastic depth", net="""
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
""")
piece("net", "float64", net="""
class Double(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 8), nn.ELU(inplace=True), nn.Linear(8, 4)).double()

    def forward(self, x):
        return self.net(x.double()).float()


model = Double()
""")
piece("net", "embedding", net="""
class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(32, 8, mode="mean")
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.words((x.abs() * 10).long() % 32))


model = Embedded()
""")
piece("net", "compile eager", weight=0.5, net="""
model = torch.compile(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)), backend="eager")
""")
piece("net", "compile aot_eager", weight=0.5, net="""
model = torch.compile(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)), backend="aot_eager")
""")
piece("net", "compile inductor", weight=0.1, net="""
model = torch.compile(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)))
""")

# data

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
piece("data", "one batch", data="""
batch = torch.randn(8, 16), torch.randint(0, 4, (8,))


def batches(n):
    return (batch for _ in range(n))
""")
piece("data", "list of batches", data="""
def batches(n):
    return [(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(n)]
""")
piece("data", "forked workers", weight=0.7, data=NOISY + """
loader = DataLoader(data, 8, num_workers=2, multiprocessing_context="fork")
""" + BATCHES)
piece("data", "persistent workers", weight=0.7, data=NOISY + """
loader = DataLoader(data, 8, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=3,
                    worker_init_fn=lambda i: random.seed(i), generator=torch.Generator().manual_seed(3))
""" + BATCHES)
piece("data", "spawned worker", weight=0.3, data=NOISY + """
loader = DataLoader(data, 8, num_workers=1, persistent_workers=True, multiprocessing_context="spawn")
""" + BATCHES)
piece("data", "stream", data="""
class Stream(IterableDataset):
    def __iter__(self):
        for _ in range(100):
            yield torch.randn(16), random.randrange(4)


loader = DataLoader(Stream(), batch_size=8, drop_last=True)
""" + BATCHES)
piece("data", "stream of a forked worker", weight=0.5, data="""
class Stream(IterableDataset):
    def __iter__(self):
        say_of = torch.utils.data.get_worker_info()
        for i in range(160):
            yield torch.randn(16) + say_of.id, i % 4


loader = DataLoader(Stream(), batch_size=8, num_workers=1)
""" + BATCHES)
piece("data", "next of iter each step", data=TENSORS + """
loader = DataLoader(data, batch_size=8, shuffle=True)


def batches(n):
    for _ in range(n):
        yield next(iter(loader))
""")
piece("data", "dataclass batches", data=TENSORS + """
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
""" + BATCHES)
piece("data", "weighted sampler", data=TENSORS + """
from torch.utils.data import WeightedRandomSampler

loader = DataLoader(data, 8, sampler=WeightedRandomSampler([1.0, 2.0] * 32, 64))
""" + BATCHES)
piece("data", "loader in a loader", data=TENSORS + """
class Outer(Dataset):
    inner = DataLoader(data, batch_size=1, shuffle=True)

    def __len__(self):
        return 32

    def __getitem__(self, index):
        x, y = next(iter(self.inner))
        return x[0], y[0]


loader = DataLoader(Outer(), batch_size=8)
""" + BATCHES)
piece("data", "pinned loader", data=TENSORS + "loader = DataLoader(data, 8, pin_memory=True)\n" + BATCHES)
piece("data", "tensor subclass", data="""
class Named(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.seen.append(getattr(function, "__name__", "?"))
        return super().__torch_function__(function, types, args, kwargs or {})


def batches(n):
    for _ in range(n):
        yield torch.randn(8, 16).as_subclass(Named), torch.randint(0, 4, (8,))
""", end="say(len(Named.seen), digest(Named.seen))")

# optimizers

piece("optimizer", "sgd", optimizer="optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)")
piece("optimizer", "adamw", optimizer="optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)")
piece("optimizer", "adam foreach", optimizer="optimizer = torch.optim.Adam(model.parameters(), foreach=True)")
piece("optimizer", "rmsprop", optimizer="""
optimizer = torch.optim.RMSprop([{"params": list(model.parameters()), "lr": 1e-3}], lr=0.1, centered=True)
""")
piece("optimizer", "adagrad of two groups", optimizer="""
first, *rest = model.parameters()
optimizer = torch.optim.Adagrad([{"params": [first], "lr": 0.001}, {"params": rest}], lr=0.01)
""")
piece("optimizer", "own optimizer", optimizer="""
class Sign(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p]["n"] = self.state[p].get("n", 0) + 1
                    p.sub_(p.grad.sgn() * group["lr"])


optimizer = Sign(model.parameters(), 1e-3)
""")
piece("optimizer", "hooked optimizer", optimizer="""
updates = []
optimizer = torch.optim.NAdam(model.parameters(), 1e-3)
optimizer.register_step_pre_hook(lambda o, args, kwargs: updates.append((len(args), sorted(kwargs))))
optimizer.register_step_post_hook(lambda *_: updates.append("after"))
""", end="say(digest(updates))")
piece("optimizer", "patched step", optimizer="""
import functools

optimizer = torch.optim.SGD(model.parameters(), 0.01)
real_step, patched = optimizer.step, []


@functools.wraps(real_step)
def patched_step(*args, **kwargs):
    patched.append(1)
    return real_step(*args, **kwargs)


optimizer.step = patched_step
""", end="say(len(patched), type(optimizer.step).__name__, optimizer.step.__name__)")

# one step

piece("step", "plain step", step="""
loss = F.cross_entropy(model(x), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
""")
piece("step", "closure", step="""
def closure():
    optimizer.zero_grad()
    result = F.cross_entropy(model(x), y)
    result.backward()
    return result

loss = optimizer.step(closure)
loss = F.cross_entropy(model(x), y) if loss is None else loss
""")
piece("step", "lbfgs", optimizer="optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3)", step="""
def closure():
    optimizer.zero_grad()
    result = F.cross_entropy(model(x), y)
    result.backward()
    return result

loss = optimizer.step(closure)
""")
piece("step", "accumulation", step="""
loss = F.cross_entropy(model(x), y) / 3
loss.backward()
if k % 3 == 2:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
""")
piece("step", "bf16 autocast", step="""
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = F.cross_entropy(model(x).float(), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
""")
piece("step", "gradient scaler", setup="scaler = torch.amp.GradScaler('cpu', init_scale=1024.0, growth_interval=20)", step="""
loss = F.cross_entropy(model(x), y)
optimizer.zero_grad()
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
scaler.step(optimizer)
scaler.update()
""", end="say(scaler.state_dict())")
piece("step", "double backward", step="""
x = x.clone().requires_grad_()
score = model(x)
(slope,) = torch.autograd.grad(score.sum(), x, create_graph=True, allow_unused=True)
loss = F.cross_entropy(score, y) + (0.01 * slope.square().sum() if slope is not None else 0)
optimizer.zero_grad()
loss.backward()
optimizer.step()
""")
piece("step", "no optimizer", step="""
loss = F.cross_entropy(model(x), y)
grads = torch.autograd.grad(loss, [p for p in model.parameters()], allow_unused=True)
with torch.no_grad():
    for p, g in zip(model.parameters(), grads):
        if g is not None:
            p -= 0.01 * g
""")
piece("step", "functional call", step="""
params = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
loss = F.cross_entropy(torch.func.functional_call(model, params, (x,)), y)
loss.backward()
for name, p in model.named_parameters():
    p.grad = params[name].grad
optimizer.step()
""")
piece("step", "func.grad", net="""
model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
""", setup="""
def loss_of(params, x, y):
    return F.cross_entropy(torch.func.functional_call(model, params, (x,)), y)
""", step="""
params = {name: p.detach() for name, p in model.named_parameters()}
grads, loss = torch.func.grad_and_value(loss_of)(params, x, y)
for name, p in model.named_parameters():
    p.grad = grads[name]
optimizer.step()
""")
piece("step", "per-sample gradients", net="""
model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
""", setup="""
def loss_of(params, x, y):
    return F.cross_entropy(torch.func.functional_call(model, params, (x[None],)), y[None])
""", step="""
params = {name: p.detach() for name, p in model.named_parameters()}
grads = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))(params, x, y)
loss = F.cross_entropy(model(x), y)
optimizer.zero_grad()
loss.backward()
for name, p in model.named_parameters():
    p.grad = grads[name].mean(0)
optimizer.step()
""")
piece("step", "inference", step="""
with torch.inference_mode():
    loss = F.cross_entropy(model(x), y)
""")
piece("step", "inference without grad", step="""
model.eval()
with torch.no_grad():
    loss = F.cross_entropy(model(x), y)
""")
piece("step", "adversarial", optimizer="""
critic = nn.Linear(4, 1)
critic_optimizer = torch.optim.Adam(critic.parameters())
""", step="""
critic_loss = (critic(torch.randn(8, 4)) - critic(model(x).detach())).mean() + critic.weight.square().sum()
critic_optimizer.zero_grad()
critic_loss.backward()
critic_optimizer.step()
loss = F.cross_entropy(model(x), y) - 0.01 * critic(model(x)).mean()
optimizer.zero_grad()
loss.backward()
optimizer.step()
""")
piece("step", "retained graph", step="""
out = model(x)
loss = F.cross_entropy(out, y)
optimizer.zero_grad()
loss.backward(retain_graph=True)
out.square().mean().backward()
optimizer.step()
""")
piece("step", "step before backward", step="""
loss, late = F.cross_entropy(model(x), y), F.cross_entropy(model(x), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
try:
    late.backward()
    optimizer.step()
    missed.append(k)
except RuntimeError as error:
    missed.append(str(error).split(":")[0])
""", setup="missed = []", end="say(digest(missed), sorted(set(map(str, missed)))[:3])")

# loops

piece("loop", "plain loop", loop="""
for k, (x, y) in enumerate(batches(STEPS)):
    {body}
""")
piece("loop", "in a function", loop="""
def main(steps, rate=0.1):
    given = locals()
    for k, (x, y) in enumerate(batches(steps)):
        {body}
    say(sorted(given), sorted(locals()))

main(STEPS)
""")
piece("loop", "by a generator", loop="""
def training():
    for k, (x, y) in enumerate(batches(STEPS)):
        {body}
        yield k, loss

for found in training():
    assert found[0] == len(losses) - 1
""")
piece("loop", "async", loop="""
import asyncio

async def ticking(done):
    ticks = 0
    while not done:
        ticks += 1
        await asyncio.sleep(0)
    say("ticks", ticks)

async def training():
    done = []
    task = asyncio.create_task(ticking(done))
    for k, (x, y) in enumerate(batches(STEPS)):
        {body}
        await asyncio.sleep(0)
    done.append(1)
    await task

asyncio.run(training())
""")
piece("loop", "in a thread", loop="""
def training():
    for k, (x, y) in enumerate(batches(STEPS)):
        {body}

worker = threading.Thread(target=training, name="training")
worker.start()
worker.join()
""")
piece("loop", "epochs with evaluation", loop="""
def evaluate():
    was = model.training
    model.eval()
    with torch.no_grad():
        losses.append(model(torch.ones(8, 16)).sum().item().hex())
    model.train(was)

evaluate()
k = 0
for epoch in range(6):
    for x, y in batches(STEPS // 6):
        {body}
        k += 1
    evaluate()
""")
piece("loop", "two loops", loop="""
for k, (x, y) in enumerate(batches(STEPS // 2)):
    {body}
for k, (x, y) in enumerate(batches(STEPS // 2)):
    {body}
""")
piece("loop", "while and next", loop="""
source, k = iter(batches(STEPS)), 0
while True:
    try:
        x, y = next(source)
    except StopIteration:
        break
    {body}
    k += 1
""")
piece("loop", "executed text", loop="""
CODE = r'''
for k, (x, y) in enumerate(batches(STEPS)):
    {body}
'''
exec(compile(CODE, "<generated>", "exec"), globals())
""")
piece("loop", "a trainer", loop="""
class Trainer:
    __slots__ = ("model", "history")

    def __init__(self, model):
        self.model, self.history = model, []

    def __call__(self, k, x, y):
        {body}
        self.history.append(loss.detach())

trainer = Trainer(model)
for k, (x, y) in enumerate(batches(STEPS)):
    trainer(k, x, y)
say(len(trainer.history))
""")

# ends

piece("ending", "falls off", weight=3)
piece("ending", "sys.exit", after="""
if k == 171:
    sys.exit(3)
""")
piece("ending", "sys.exit with words", ending="sys.exit('a last word')")
piece("ending", "os._exit", after="""
if k == 160:
    sys.stdout.flush()
    os._exit(4)
""")
piece("ending", "error", after="""
if k == 150:
    raise ValueError(f"step {k}")
""")
piece("ending", "error of torch", after="""
if k == 140:
    model(torch.ones(3, 5, 7, 9, 11, dtype=torch.int8))
""")
piece("ending", "interrupt", after="""
if k == 145:
    signal.raise_signal(signal.SIGINT)
""")
piece("ending", "killed", after="""
if k == 155:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
""")
piece("ending", "terminated", ending="os.kill(os.getpid(), signal.SIGTERM)")
piece("ending", "aborted", ending="sys.stdout.flush(); os.abort()")
piece("ending", "code 300", ending="sys.exit(300)")
