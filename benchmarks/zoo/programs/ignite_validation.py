"""pytorch-ignite's quickstart: trainer and evaluator engines, with a validation after every tenth iteration."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(512, 10),
)


def pictures(number):
    return TensorDataset(torch.randn(number, 1, 28, 28), torch.randint(0, 10, (number,)))


train_loader = DataLoader(pictures(64 * 100), batch_size=64, shuffle=True)
val_loader = DataLoader(pictures(2000), batch_size=128)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.005)
criterion = nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, criterion)
val_evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy(), "loss": Loss(criterion)})


@trainer.on(Events.ITERATION_COMPLETED(every=10))
def log_validation_results(engine):
    val_evaluator.run(val_loader)
    metrics = val_evaluator.state.metrics
    if engine.state.iteration % 50 == 0:
        print(f"iteration {engine.state.iteration} accuracy {metrics['accuracy']:.2f}")


trainer.run(train_loader, max_epochs=1)
