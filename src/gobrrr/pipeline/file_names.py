"""Names of the files in the folder of a run, a tuning or a sweep."""

REPORT, PAGE, MARK = "report.json", "report.html", "report.mark"
"""The report, the page to look at, and the mark of who found it, before a tuning."""
JOB, JOB_PAGE = "job.json", "job.html"
"""The report of all ranks together."""
RECEIPT, RECIPE, PATCH, JOURNAL, DIAGNOSIS = "receipt.json", "recipe.toml", "recipe.patch", "journal.jsonl", "diagnosis"
NO_BASELINE = "no-baseline"
"""Empty; in the folder of a run that `gobrrr check` made and did not find steady."""
SWEEP = "sweep.json"
ARMS, CACHES = "arms-", "caches-"
"""Folders that a tuning makes and takes away."""
LEFT = (JOURNAL, RECEIPT, f"{DIAGNOSIS}/{MARK}")
"""Files that an interrupted tuning leaves, at least one of them."""
