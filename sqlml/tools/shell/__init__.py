"""The shell `sqlml`: statements and dot commands, from a terminal or a script, and their results.

`shell.py` runs what is typed; `prompt.py` reads it from a terminal, `shell.py` cuts it out of a
text; `output_modes.py` writes results.
"""
