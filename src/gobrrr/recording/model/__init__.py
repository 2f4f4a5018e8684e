"""Parts of a recording: traces, facts, steps, phases."""
