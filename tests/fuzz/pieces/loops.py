"""The loop, which runs {body} with k, x, y; and how a program ends."""

from tests.fuzz.grammar import piece

# loops

piece(
    "loop",
    "plain loop",
    loop="""
for k, (x, y) in enumerate(batches(STEPS)):
    {body}
""",
)
piece(
    "loop",
    "in a function",
    loop="""
def main(steps, rate=0.1):
    given = locals()
    for k, (x, y) in enumerate(batches(steps)):
        {body}
    say(sorted(given), sorted(locals()))

main(STEPS)
""",
)
piece(
    "loop",
    "by a generator",
    loop="""
def training():
    for k, (x, y) in enumerate(batches(STEPS)):
        {body}
        yield k, loss

for found in training():
    assert found[0] == len(losses) - 1
""",
)
piece(
    "loop",
    "async",
    loop="""
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
""",
)
piece(
    "loop",
    "in a thread",
    weight=0.5,  # gobrrr opens no window on it
    loop="""
def training():
    for k, (x, y) in enumerate(batches(STEPS)):
        {body}

worker = threading.Thread(target=training, name="training")
worker.start()
worker.join()
""",
)
piece(
    "loop",
    "epochs with evaluation",
    loop="""
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
""",
)
piece(
    "loop",
    "two loops",
    loop="""
for k, (x, y) in enumerate(batches(2 * STEPS // 3)):
    {body}
for k, (x, y) in enumerate(batches(2 * STEPS // 3)):
    {body}
""",
)
piece(
    "loop",
    "while and next",
    loop="""
source, k = iter(batches(STEPS)), 0
while True:
    try:
        x, y = next(source)
    except StopIteration:
        break
    {body}
    k += 1
""",
)
piece(
    "loop",
    "executed text",
    loop="""
import textwrap

CODE = r'''
for k, (x, y) in enumerate(batches(STEPS)):
    {body}
'''
exec(compile(textwrap.dedent(CODE), "<generated>", "exec"), globals())
""",
)
piece(
    "loop",
    "a trainer",
    loop="""
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
""",
)

# ends

piece("ending", "falls off", weight=3)
piece(
    "ending",
    "sys.exit",
    after="""
if k == 171:
    sys.exit(3)
""",
)
piece("ending", "sys.exit with words", ending="sys.exit('a last word')")
piece(
    "ending",
    "os._exit",
    after="""
if k == 160:
    sys.stdout.flush()
    os._exit(4)
""",
)
piece(
    "ending",
    "error",
    after="""
if k == 150:
    raise ValueError(f"step {k}")
""",
)
piece(
    "ending",
    "error of torch",
    after="""
if k == 140:
    model(torch.ones(3, 5, 7, 9, 11, dtype=torch.int8))
""",
)
piece(
    "ending",
    "interrupt",
    after="""
if k == 145:
    signal.raise_signal(signal.SIGINT)
""",
)
piece(
    "ending",
    "killed",
    after="""
if k == 155:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
""",
)
piece("ending", "terminated", ending="os.kill(os.getpid(), signal.SIGTERM)")
piece("ending", "aborted", ending="sys.stdout.flush(); os.abort()")
piece("ending", "code 300", ending="sys.exit(300)")
