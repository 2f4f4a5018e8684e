"""TabNet on a table after the pytorch-tabnet readme."""

import warnings

import numpy as np
import torch
from pytorch_tabnet.tab_model import TabNetClassifier

warnings.filterwarnings("ignore")
draw = np.random.default_rng(0)
X = draw.normal(size=(16000, 30)).astype(np.float32)
y = (X[:, 0] + X[:, 1] > 0).astype(int)
torch.manual_seed(0)
classifier = TabNetClassifier(seed=0, verbose=0, device_name="cpu")
classifier.fit(X, y, max_epochs=6, batch_size=1024, virtual_batch_size=128)
print(f"right {(classifier.predict(X) == y).mean():.1f}")
