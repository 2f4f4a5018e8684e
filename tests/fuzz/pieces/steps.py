"""The `optimizer`, and one step with it, which makes `loss` of x and y."""

from tests.fuzz.grammar import piece

# optimizers

piece("optimizer", "sgd", optimizer="optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)")
piece("optimizer", "adamw", optimizer="optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)")
piece("optimizer", "adam foreach", optimizer="optimizer = torch.optim.Adam(model.parameters(), foreach=True)")
piece(
    "optimizer",
    "rmsprop",
    optimizer="""
optimizer = torch.optim.RMSprop([{"params": list(model.parameters()), "lr": 1e-3}], lr=0.1, centered=True)
""",
)
piece(
    "optimizer",
    "adagrad of two groups",
    optimizer="""
first, *rest = model.parameters()
optimizer = torch.optim.Adagrad([{"params": [first], "lr": 0.001}, {"params": rest}], lr=0.01)
""",
)
piece(
    "optimizer",
    "own optimizer",
    optimizer="""
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
""",
)
piece(
    "optimizer",
    "hooked optimizer",
    optimizer="""
updates = []
optimizer = torch.optim.NAdam(model.parameters(), 1e-3)
optimizer.register_step_pre_hook(lambda o, args, kwargs: updates.append((len(args), sorted(kwargs))))
optimizer.register_step_post_hook(lambda *_: updates.append("after"))
""",
    end="say(digest(updates))",
)
piece(
    "optimizer",
    "patched step",
    optimizer="""
import functools

optimizer = torch.optim.SGD(model.parameters(), 0.01)
real_step, patched = optimizer.step, []


@functools.wraps(real_step)
def patched_step(*args, **kwargs):
    patched.append(1)
    return real_step(*args, **kwargs)


optimizer.step = patched_step
""",
    end="say(len(patched), type(optimizer.step).__name__, optimizer.step.__name__)",
)

# one step

piece(
    "step",
    "plain step",
    step="""
loss = F.cross_entropy(model(x), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
""",
)
piece(
    "step",
    "closure",
    step="""
def closure():
    optimizer.zero_grad()
    result = F.cross_entropy(model(x), y)
    result.backward()
    return result

loss = optimizer.step(closure)
loss = F.cross_entropy(model(x), y) if loss is None else loss
""",
)
piece(
    "step",
    "lbfgs",
    optimizer="optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3)",
    step="""
def closure():
    optimizer.zero_grad()
    result = F.cross_entropy(model(x), y)
    result.backward()
    return result

loss = optimizer.step(closure)
""",
)
piece(
    "step",
    "accumulation",
    step="""
loss = F.cross_entropy(model(x), y) / 3
loss.backward()
if k % 3 == 2:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
""",
)
piece(
    "step",
    "bf16 autocast",
    step="""
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = F.cross_entropy(model(x).float(), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
""",
)
piece(
    "step",
    "gradient scaler",
    setup="scaler = torch.amp.GradScaler('cpu', init_scale=1024.0, growth_interval=20)",
    step="""
loss = F.cross_entropy(model(x), y)
optimizer.zero_grad()
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
scaler.step(optimizer)
scaler.update()
""",
    end="say(scaler.state_dict())",
)
piece(
    "step",
    "double backward",
    step="""
x = x.clone().requires_grad_()
score = model(x)
(slope,) = torch.autograd.grad(score.sum(), x, create_graph=True, allow_unused=True)
loss = F.cross_entropy(score, y) + (0.01 * slope.square().sum() if slope is not None else 0)
optimizer.zero_grad()
loss.backward()
optimizer.step()
""",
)
piece(
    "step",
    "no optimizer",
    step="""
loss = F.cross_entropy(model(x), y)
grads = torch.autograd.grad(loss, [p for p in model.parameters()], allow_unused=True)
with torch.no_grad():
    for p, g in zip(model.parameters(), grads):
        if g is not None:
            p -= 0.01 * g
""",
)
piece(
    "step",
    "functional call",
    step="""
params = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
loss = F.cross_entropy(torch.func.functional_call(model, params, (x,)), y)
loss.backward()
for name, p in model.named_parameters():
    p.grad = params[name].grad
optimizer.step()
""",
)
piece(
    "step",
    "func.grad",
    net="""
model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
""",
    setup="""
def loss_of(params, x, y):
    return F.cross_entropy(torch.func.functional_call(model, params, (x,)), y)
""",
    step="""
params = {name: p.detach() for name, p in model.named_parameters()}
grads, loss = torch.func.grad_and_value(loss_of)(params, x, y)
for name, p in model.named_parameters():
    p.grad = grads[name]
optimizer.step()
""",
)
piece(
    "step",
    "per-sample gradients",
    net="""
model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
""",
    setup="""
def loss_of(params, x, y):
    return F.cross_entropy(torch.func.functional_call(model, params, (x[None],)), y[None])
""",
    step="""
params = {name: p.detach() for name, p in model.named_parameters()}
grads = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))(params, x, y)
loss = F.cross_entropy(model(x), y)
optimizer.zero_grad()
loss.backward()
for name, p in model.named_parameters():
    p.grad = grads[name].mean(0)
optimizer.step()
""",
)
piece(
    "step",
    "inference",
    step="""
with torch.inference_mode():
    loss = F.cross_entropy(model(x), y)
""",
)
piece(
    "step",
    "inference without grad",
    step="""
model.eval()
with torch.no_grad():
    loss = F.cross_entropy(model(x), y)
""",
)
piece(
    "step",
    "adversarial",
    optimizer="""
critic = nn.Linear(4, 1)
critic_optimizer = torch.optim.Adam(critic.parameters())
""",
    step="""
critic_loss = (critic(torch.randn(8, 4)) - critic(model(x).detach())).mean() + critic.weight.square().sum()
critic_optimizer.zero_grad()
critic_loss.backward()
critic_optimizer.step()
loss = F.cross_entropy(model(x), y) - 0.01 * critic(model(x)).mean()
optimizer.zero_grad()
loss.backward()
optimizer.step()
""",
)
piece(
    "step",
    "retained graph",
    step="""
out = model(x)
loss = F.cross_entropy(out, y)
optimizer.zero_grad()
loss.backward(retain_graph=True)
out.square().mean().backward()
optimizer.step()
""",
)
piece(
    "step",
    "step before backward",
    step="""
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
""",
    setup="missed = []",
    end="say(digest(missed), sorted(set(map(str, missed)))[:3])",
)
