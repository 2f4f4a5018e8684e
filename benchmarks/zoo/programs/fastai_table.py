"""fastai's tabular learner after its documentation, on a made-up table."""

import numpy as np
import pandas as pd
from fastai.tabular.all import (
    Categorify,
    FillMissing,
    Normalize,
    TabularDataLoaders,
    accuracy,
    set_seed,
    tabular_learner,
)

set_seed(0)
draw = np.random.default_rng(0)
table = pd.DataFrame({f"x{number}": draw.normal(size=20000) for number in range(8)})
table["kind"] = draw.choice(["a", "b", "c"], 20000)
table["label"] = (table["x0"] > 0).astype(int).astype(str)
dls = TabularDataLoaders.from_df(
    table,
    y_names="label",
    cat_names=["kind"],
    cont_names=[f"x{number}" for number in range(8)],
    procs=[Categorify, FillMissing, Normalize],
    bs=64,
    num_workers=0,
)
learn = tabular_learner(dls, metrics=accuracy)
with learn.no_bar(), learn.no_logging():
    learn.fit_one_cycle(2)
print(f"accuracy {learn.validate()[1]:.1f}")
