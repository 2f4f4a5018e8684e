"""gobrrr where people already are: their test runner, their trainer, their notebook."""
