"""What the files of a run's and of a tuning's folder are called."""

REPORT, PAGE, MARK = "report.json", "report.html", "report.mark"
"""What was found, the page to look at, and the mark of who found it, before a tuning."""
RECEIPT, RECIPE, PATCH, JOURNAL, DIAGNOSIS = "receipt.json", "recipe.toml", "recipe.patch", "journal.jsonl", "diagnosis"
ARMS, CACHES = "arms-", "caches-"
"""Folders that a tuning makes and takes away."""
LEFT = (JOURNAL, RECEIPT, f"{DIAGNOSIS}/{MARK}")
"""What a tuning that was interrupted leaves, one of these at least."""
