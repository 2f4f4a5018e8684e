"""Twelve evaluations as people write them; each loads the weights that `benchmarks.lossy.train` made."""
