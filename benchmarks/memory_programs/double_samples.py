# limit: data 1.5GiB | holder: variables,arrays,other tensors | first: double_precision,free_references,table_read_whole
import numpy as np
import torch

rng = np.random.default_rng(0)
raw = rng.integers(0, 100, (900_000, 256), dtype=np.uint8)
table = raw.astype(np.float64) / 100  # dies, fix[double_precision]: table = raw.astype(np.float32) / np.float32(100)
print(torch.from_numpy(table).mean())
