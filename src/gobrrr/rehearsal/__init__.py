"""Rehearsal: a micro-benchmark of the recording's own hot ops, as they are and as a remedy would run them.

A scene is the pair of both for one remedy; it is played when a process of the user's Python has timed both in turn."""
