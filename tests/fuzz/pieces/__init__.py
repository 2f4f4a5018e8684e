"""The pieces, by what they are about. How to add one stands in tests/fuzz/grammar.py."""
