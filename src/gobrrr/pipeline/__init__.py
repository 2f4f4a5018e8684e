"""The sentence of the architecture: recording, ledger, findings, report, and tune's engine. Verbs and doors call it."""
