"""A temporal fusion transformer with pytorch-forecasting and Lightning, after its first tutorial."""

import logging
import warnings

import lightning.pytorch as pl
import numpy as np
import pandas as pd
from pytorch_forecasting import QuantileLoss, TemporalFusionTransformer, TimeSeriesDataSet

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pl.seed_everything(0)
draw = np.random.default_rng(0)
table = pd.DataFrame(
    [
        {"series": str(series), "time": time, "value": float(np.sin(time / 8 + series) + draw.normal() * 0.1)}
        for series in range(30)
        for time in range(120)
    ]
)
training = TimeSeriesDataSet(
    table,
    time_idx="time",
    target="value",
    group_ids=["series"],
    max_encoder_length=24,
    max_prediction_length=6,
    static_categoricals=["series"],
    time_varying_known_reals=["time"],
    time_varying_unknown_reals=["value"],
)
train_dataloader = training.to_dataloader(train=True, batch_size=32, num_workers=0)
tft = TemporalFusionTransformer.from_dataset(
    training,
    learning_rate=0.03,
    hidden_size=16,
    attention_head_size=2,
    dropout=0.1,
    hidden_continuous_size=8,
    loss=QuantileLoss(),
    log_interval=0,
)
trainer = pl.Trainer(
    max_epochs=1,
    accelerator="cpu",
    limit_train_batches=70,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    gradient_clip_val=0.1,
)
trainer.fit(tft, train_dataloaders=train_dataloader)
print("done")
