"""How are things told to people? A noun becomes blocks in told/, whose words are composed once; each form shows blocks.

A form more touches its renderer of blocks in forms/, its row in forms/formats.py, its name in tests/snapshots/cases.py
and its line in docs/find-out/report.md. A noun more touches its module in told/ and its row of KINDS in
forms/formats.py.
"""
