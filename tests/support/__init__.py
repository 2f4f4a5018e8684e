"""What tests of several rooms share."""

from pathlib import Path

DESCENT = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); from descent import Descent\n"
"""First line of a program that has Descent for its optimizer: see descent.py."""
