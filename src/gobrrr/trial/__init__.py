"""Whether a remedy helped: arms, schedule, statistics, search, receipt, recipe."""
