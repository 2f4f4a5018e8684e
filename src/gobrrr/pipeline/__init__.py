"""The pipeline that verbs and integrations call: recording, ledger, findings, report; and the engine of tune."""
