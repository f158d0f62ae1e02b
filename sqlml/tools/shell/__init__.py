"""The interactive shell `sqlml`: statements and dot commands from a terminal or a script.

Input: an open session and lines of text. Output: results in one of the output modes.

Read first: `shell.py`, which runs scripts, and `output_modes.py`, which writes results. `prompt.py`
reads from a terminal, with the completion of `completion.py`. `dot_commands.py` has the commands
that begin with a dot. To add an output mode, write a function and add it to `MODES` in
`output_modes.py`.
"""
