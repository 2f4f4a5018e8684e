"""The command line: one file per verb. `main.py` lists them and imports the one that is asked for."""
