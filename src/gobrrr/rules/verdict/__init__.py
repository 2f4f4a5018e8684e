"""Words about a step: the report, its verdict and the sentence, from ledger and findings."""
