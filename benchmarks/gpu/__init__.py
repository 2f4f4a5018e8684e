"""All that waits for a GPU: `python -m benchmarks.gpu` says what and how."""
