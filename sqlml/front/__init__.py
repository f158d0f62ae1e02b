"""SQL text -> frozen Statement; no I/O, no engine."""
