"""The rewrite rules, one a file: each is a function `Draft -> Draft`.

In goes the outline of a statement with model calls; out comes the statement as the engine runs it,
with the planned calls.

Read first: `draft.py` (the state that rules pass on) and `apply_rules.py` (all rules in their
order, and the entry `rewrite`, which undoes rules that change what the user's names mean).

To add a rule, write a file with its function, insert it into `RULES` in `apply_rules.py`, and add a
golden file of titled statements that it changes.
"""
