"""Names of the files in a run's and in a tuning's folder."""

REPORT, PAGE, MARK = "report.json", "report.html", "report.mark"
"""The report, the page to look at, and the mark of who found it, before a tuning."""
RECEIPT, RECIPE, PATCH, JOURNAL, DIAGNOSIS = "receipt.json", "recipe.toml", "recipe.patch", "journal.jsonl", "diagnosis"
ARMS, CACHES = "arms-", "caches-"
"""Folders that a tuning makes and takes away."""
LEFT = (JOURNAL, RECEIPT, f"{DIAGNOSIS}/{MARK}")
"""Files that an interrupted tuning leaves, at least one of them."""
