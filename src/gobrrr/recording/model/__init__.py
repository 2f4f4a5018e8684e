"""Which parts make a recording: traces, facts, steps, phases?"""
