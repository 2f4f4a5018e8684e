"""Which runs are errors counted from: float64, other seeds, the baseline's own state?"""
