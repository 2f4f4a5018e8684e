"""Remedies: each says when it applies, applies itself at torch's seams, and undoes itself."""
